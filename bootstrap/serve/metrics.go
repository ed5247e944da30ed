package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's own; each Server has a registry, so several can run in one process.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    prometheus.Counter
	reloads  prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dayone_serve_requests_total",
			Help: "Requests by kind and status."}, []string{"kind", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dayone_serve_request_seconds",
			Help:    "Time to answer by kind, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8)}, []string{"kind"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "dayone_serve_bytes_total",
			Help: "Bytes of bodies sent."}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{Name: "dayone_serve_reloads_total",
			Help: "Times the rendered directory was read."}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.bytes, m.reloads)
	return m
}

func (m *metrics) observe(kind string, status int, took time.Duration, written int64) {
	m.requests.WithLabelValues(kind, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(kind).Observe(took.Seconds())
	m.bytes.Add(float64(written))
}

func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}
