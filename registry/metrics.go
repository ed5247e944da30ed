package registry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dayone.dev/dayone/registry/storage"
)

// metrics are of one server: several in a process do not add up.
type metrics struct {
	requests map[endpoint]prometheus.Counter
	seconds  map[endpoint]prometheus.Observer
	failures prometheus.Counter
	refused  prometheus.Counter
	sent     prometheus.Counter
	received prometheus.Counter
	corrupt  prometheus.Counter
	// collections and collected are of the schedule, not of commands.
	collections prometheus.Counter
	collected   prometheus.Counter
	handler     http.Handler
}

func newMetrics(store *storage.Store) *metrics {
	reg := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "dayone", Subsystem: "registry", Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		refused:     counter("logins_refused_total", "Requests without a valid account."),
		sent:        counter("blob_bytes_sent_total", "Bytes of blobs sent to clients."),
		received:    counter("blob_bytes_received_total", "Bytes of blobs received from clients."),
		corrupt:     counter("blobs_corrupt_total", "Blobs that were found corrupt on disk and quarantined."),
		collections: counter("collections_total", "Garbage collections that the server ran by itself."),
		collected:   counter("collected_bytes_total", "Bytes of blobs that these collections removed."),
		failures:    counter("failures_total", "Requests that failed by the server's fault (500)."),
		requests:    map[endpoint]prometheus.Counter{},
		seconds:     map[endpoint]prometheus.Observer{},
	}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "requests_total",
		Help: "Authenticated requests by endpoint."}, []string{"endpoint"})
	reg.MustRegister(vec, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "stored_bytes",
		Help: "Bytes that blobs and uploads take."}, func() float64 { return float64(store.Used()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "uploads", Help: "Uploads under way, also those whose client is silent."},
		func() float64 { return float64(store.Uploads()) }))
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "request_seconds", Help: "Seconds from an authenticated request to the end of its answer, by endpoint.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10)}, []string{"endpoint"})
	reg.MustRegister(seconds, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	names := [...]string{endNone: "none", endBase: "base", endCatalog: "catalog", endTags: "tags", endManifest: "manifest",
		endBlob: "blob", endUploads: "upload_start", endUpload: "upload", endReferrers: "referrers", endMetrics: "metrics"}
	for end, name := range names {
		m.requests[endpoint(end)] = vec.WithLabelValues(name)
		m.seconds[endpoint(end)] = seconds.WithLabelValues(name)
	}
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}
