package statuscontroller

import (
	"fmt"
	"strings"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Reasons of the conditions.
const (
	reasonAsExpected       = "AsExpected"
	reasonOperatorAbsent   = "MachineConfigOperatorAbsent"
	reasonOperatorBack     = "MachineConfigOperatorIsBack"
	reasonOverrideMissing  = "ClusterVersionOverrideMissing"
	reasonTwoInstallations = "TwoInstallations"
	reasonControllers      = "ControllersReport"
	reasonPools            = "PoolsReport"
	reasonRollout          = "RollingOut"
	reasonInOperatorsPlace = "InTheMachineConfigOperatorsPlace"
	typeAvailable          = "Available"
	typeProgressing        = "Progressing"
	typeDegraded           = "Degraded"
	typeUpgradeable        = "Upgradeable"
	maxNamed               = 8
	maxMessage             = 4096
)

// view is everything that decides about the conditions.
type view struct {
	mode cluster.Mode
	// rivals are the workloads of the Machine Config Operator that run.
	rivals []string
	// openshift: there is a ClusterVersion; overridden: it leaves the Machine Config Operator alone.
	openshift, overridden bool
	// elsewhere names another installation, or nothing.
	elsewhere string
	// rollouts say which of dayone's Deployments are not there yet; moving and failing are what controllers and pools say.
	rollouts       []string
	moving, pools  []string
	failing, stuck []string
}

// verdict is one condition without its time.
type verdict struct {
	kind    string
	is      bool
	reason  string
	message string
}

// judge is pure: the four conditions, in this order.
func judge(v view) []verdict {
	return []verdict{v.available(), v.progressing(), v.degraded(), v.upgradeable()}
}

func (v view) available() verdict {
	switch {
	case v.mode == cluster.Full && len(v.rivals) > 0:
		return verdict{typeAvailable, false, reasonOperatorBack,
			"dayone's controllers wait: the Machine Config Operator runs again (" + enumerate(v.rivals) + ")"}
	case v.mode != cluster.Full && len(v.rivals) == 0:
		return verdict{typeAvailable, false, reasonOperatorAbsent, "no Machine Config Operator runs in namespace " +
			cluster.DefaultNamespace + ", so nobody rolls out: start it"}
	}
	return verdict{typeAvailable, true, reasonAsExpected, fmt.Sprintf("dayone works in mode %s", v.mode)}
}

func (v view) progressing() verdict {
	switch {
	case len(v.rollouts) > 0:
		return verdict{typeProgressing, true, reasonRollout, enumerate(v.rollouts)}
	case len(v.moving) > 0:
		return verdict{typeProgressing, true, reasonControllers, enumerate(v.moving)}
	case len(v.pools) > 0:
		return verdict{typeProgressing, true, reasonPools, "nodes are updated of " + enumerate(v.pools)}
	}
	return verdict{typeProgressing, false, reasonAsExpected, "nothing is under way"}
}

// degraded names what an admin has to do first: what follows may only be its consequence.
func (v view) degraded() verdict {
	switch {
	case v.mode == cluster.Full && len(v.rivals) > 0:
		return verdict{typeDegraded, true, reasonOperatorBack, "the Machine Config Operator runs beside dayone, which has " +
			"stopped writing: put it aside again with dayone cluster install --mode full --take-over, or run dayone cluster " +
			"uninstall"}
	case v.mode == cluster.Full && v.openshift && !v.overridden:
		return verdict{typeDegraded, true, reasonOverrideMissing,
			"the override for the Machine Config Operator is gone from ClusterVersion version, " +
				"and the cluster-version operator will start it again: set it again with dayone cluster " +
				"install --mode full --take-over, or run dayone cluster uninstall"}
	case v.elsewhere != "":
		return verdict{typeDegraded, true, reasonTwoInstallations, "dayone is installed in namespace " + v.elsewhere +
			", too: uninstall one of the two"}
	case len(v.failing) > 0:
		return verdict{typeDegraded, true, reasonControllers, enumerate(v.failing)}
	case len(v.stuck) > 0:
		return verdict{typeDegraded, true, reasonPools, enumerate(v.stuck)}
	}
	return verdict{typeDegraded, false, reasonAsExpected, "nothing is in the way"}
}

func (v view) upgradeable() verdict {
	if v.mode == cluster.Full && v.openshift {
		return verdict{typeUpgradeable, false, reasonInOperatorsPlace,
			"in mode full the ClusterOperator machine-config does not follow a new release, though dayone brings its base OS " +
				"and templates to the nodes: the cluster-version operator waits for it until you run dayone cluster uninstall"}
	}
	return verdict{typeUpgradeable, true, reasonAsExpected, "dayone keeps no upgrade back"}
}

// enumerate bounds how much a message says.
func enumerate(texts []string) string {
	more := ""
	if len(texts) > maxNamed {
		more = fmt.Sprintf("; and %d more", len(texts)-maxNamed)
		texts = texts[:maxNamed]
	}
	text := strings.Join(texts, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text + more
}
