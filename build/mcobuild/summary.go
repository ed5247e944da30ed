package mcobuild

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
)

// Summarize says in plain sentences what became of the build and what comes next.
func Summarize(r Record, retry Retry) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("MachineOSBuild %s of pool %s: %s.", r.Build, r.Pool, r.Outcome)
	if c := r.Cause; c != nil {
		add("Cause (%s): %s.", c.Class, strings.TrimRight(c.Message, ". \n"))
		if c.Line > 0 {
			add("Place: line %d of the Containerfile: %s", c.Line, c.Instruction)
		} else if c.Instruction != "" {
			add("Place: %s", c.Instruction)
		}
		if c.Next != "" {
			add("Next: %s.", strings.TrimRight(c.Next, "."))
		}
	}
	if n := len(r.Pods); n > 0 {
		add("Attempts: %d; the last one was pod %s on node %s.", n, r.Pods[n-1].Name, r.Pods[n-1].Node)
	}
	if retry.Why != "" {
		add("Retry: %s.", retry.Why)
	}
	if r.Lost != "" {
		add("Log: %s.", r.Lost)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Unseen says what the pool itself does not: MCO marks no pool for a build that never got a Job. Empty: it does.
func Unseen(c Cause, pool *mcfgv1.MachineConfigPool) string {
	if c.Step != stepRequest || pool == nil {
		return ""
	}
	for _, condition := range pool.Status.Conditions {
		if condition.Type == mcfgv1.MachineConfigPoolImageBuildDegraded && condition.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return "; pool " + pool.Name + " does not show it: its condition ImageBuildDegraded is not True, and its nodes keep " +
		"the image they have"
}
