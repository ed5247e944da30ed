package draincontroller

import "github.com/prometheus/client_golang/prometheus"

// Measure registers the reconciler's metrics, as SetupWithManager does.
func (r *Reconciler) Measure(to prometheus.Registerer) error { return r.metrics.register(to) }
