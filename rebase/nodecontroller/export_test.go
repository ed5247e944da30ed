package nodecontroller

import "github.com/prometheus/client_golang/prometheus"

// Measure registers the reconciler's metrics, as SetupWithManager does.
func (r *Reconciler) Measure(to prometheus.Registerer) error { return r.measure(to) }

// TellChanges is what the watch of nodes tells.
var TellChanges = tellChanges
