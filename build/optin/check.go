package optin

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
)

// Reasons of manifests.ConditionOptedIn, which this package alone writes.
const (
	// reasonOptedIn comes with True; the others come with False.
	reasonOptedIn = "OptedIn"
	// reasonPoolTaken says that another MachineOSConfig is the pool's.
	reasonPoolTaken = "PoolTaken"
	// reasonPoolMissing says that there is no such pool.
	reasonPoolMissing = "PoolMissing"
	// reasonPushSpecUnusable says that the image could be pushed but not recorded.
	reasonPushSpecUnusable = "PushSpecUnusable"
	// reasonSecretMissing names a Secret that is not there.
	reasonSecretMissing = "SecretMissing"
	// reasonSecretUnusable names a Secret without registry credentials.
	reasonSecretUnusable = "SecretUnusable"
)

// situation is what has to be known besides the MachineOSConfig itself.
type situation struct {
	poolExists bool
	// winner is the name of the MachineOSConfig to which the pool belongs.
	winner string
	// secrets are those that the MachineOSConfig names, in the order in which they are to be mended.
	secrets []secretState
}

// secretState is one Secret as a build would find it.
type secretState struct {
	field, name string
	missing     bool
	// fault says why it cannot be used; it never quotes content.
	fault string
}

// verdict is what ConditionOptedIn says.
type verdict struct {
	optedIn         bool
	reason, message string
}

// check decides whether config opts its pool in. The first thing that is wrong is named.
func check(config *mcfgv1.MachineOSConfig, s situation, namespace string) verdict {
	pool := config.Spec.MachineConfigPool.Name
	refuse := func(reason, format string, args ...any) verdict {
		return verdict{reason: reason, message: fmt.Sprintf(format, args...)}
	}
	if s.winner != config.Name {
		return refuse(reasonPoolTaken,
			"pool %s belongs to MachineOSConfig %s; a pool can have one: delete this one or the other", pool, s.winner)
	}
	if !s.poolExists {
		return refuse(reasonPoolMissing, "there is no MachineConfigPool %s: make it, or delete this MachineOSConfig", pool)
	}
	repository := installconfig.Repository(string(config.Spec.RenderedImagePushSpec))
	if fault := machineosbuild.Unrecordable(repository); fault != "" {
		return refuse(reasonPushSpecUnusable, "spec.renderedImagePushSpec: %s", fault)
	}
	for _, secret := range s.secrets {
		if secret.missing {
			return refuse(reasonSecretMissing,
				"there is no Secret %s/%s, which %s names: make it with type kubernetes.io/dockerconfigjson", namespace,
				secret.name, secret.field)
		}
		if secret.fault != "" {
			return refuse(reasonSecretUnusable, "Secret %s/%s, which %s names, cannot be used: %s", namespace, secret.name,
				secret.field, secret.fault)
		}
	}
	return verdict{optedIn: true, reason: reasonOptedIn, message: fmt.Sprintf("pool %s is opted in", pool)}
}

// winner is the MachineOSConfig to which a pool belongs: that of the pool's name, as the API demands since 2026,
// otherwise the oldest, and of two equally old ones the first by name. Those that are being deleted do not count.
func winner(configs []mcfgv1.MachineOSConfig, pool string) string {
	var best *mcfgv1.MachineOSConfig
	for i := range configs {
		c := &configs[i]
		if c.DeletionTimestamp != nil || c.Spec.MachineConfigPool.Name != pool {
			continue
		}
		if best == nil || before(c, best, pool) {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

func before(a, b *mcfgv1.MachineOSConfig, pool string) bool {
	if (a.Name == pool) != (b.Name == pool) {
		return a.Name == pool
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(a.Name, b.Name) < 0
}
