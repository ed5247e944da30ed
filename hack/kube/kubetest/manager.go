package kubetest

import "sigs.k8s.io/controller-runtime/pkg/config"

// Controllers are the settings of a manager's controllers in a test: a process may run many managers one after the
// other, and their queue is the one that dayone's programs have (cmd/internal/manager says why).
func Controllers() config.Controller {
	return config.Controller{SkipNameValidation: new(true), UsePriorityQueue: new(false)}
}
