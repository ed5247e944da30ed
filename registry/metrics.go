package registry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// metrics are of one server: several in a process do not add up.
type metrics struct {
	requests    map[route.Endpoint]prometheus.Counter
	seconds     map[route.Endpoint]prometheus.Observer
	failures    prometheus.Counter
	refused     prometheus.Counter
	sent        prometheus.Counter
	received    prometheus.Counter
	corrupt     prometheus.Counter
	collections prometheus.Counter
	collected   prometheus.Counter
	scrubs      prometheus.Counter
	// of a pull-through registry, 0 without an upstream
	upstreamAsked, upstreamBytes, stale prometheus.Counter

	handler http.Handler
}

func newMetrics(store *storage.Store, h *house) *metrics {
	reg := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "dayone", Subsystem: "registry", Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		refused:       counter("logins_refused_total", "Requests refused with 401 or 429 for want of a valid account."),
		sent:          counter("blob_bytes_sent_total", "Bytes of blobs sent to clients."),
		received:      counter("blob_bytes_received_total", "Bytes of blobs received from clients, also of refused uploads."),
		corrupt:       counter("blobs_corrupt_total", "Blobs that were found corrupt on disk and are no longer served."),
		collections:   counter("collections_total", "Garbage collections, by schedule and by command, without dry runs."),
		collected:     counter("collected_bytes_total", "Bytes of blobs that these collections removed."),
		scrubs:        counter("scrubs_total", "Verifications of all blobs that ended, by schedule and by command."),
		failures:      counter("failures_total", "Requests that failed by the server's fault (500)."),
		upstreamAsked: counter("upstream_requests_total", "Requests to the upstream of a pull-through registry."),
		upstreamBytes: counter("upstream_bytes_received_total", "Bytes of manifests and blobs that came from the upstream."),
		stale:         counter("stale_tags_total", "Answers with a tag that the upstream did not confirm."),
		requests:      map[route.Endpoint]prometheus.Counter{},
		seconds:       map[route.Endpoint]prometheus.Observer{},
	}
	for _, g := range gauges(store, h) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "dayone", Subsystem: "registry",
			Name: g.name, Help: g.help}, g.value))
	}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "requests_total",
		Help: "Requests of accounts that may make them, by endpoint."}, []string{"endpoint"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "dayone", Subsystem: "registry",
		Name: "request_seconds", Help: "Seconds from such a request to the end of its answer, by endpoint.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10)}, []string{"endpoint"})
	reg.MustRegister(vec, seconds, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	names := [...]string{route.None: "none", route.Base: "base", route.Catalog: "catalog", route.Tags: "tags",
		route.Manifest: "manifest", route.Blob: "blob", route.Uploads: "upload_start", route.Upload: "upload",
		route.Referrers: "referrers", route.Metrics: "metrics"}
	for end, name := range names {
		m.requests[route.Endpoint(end)] = vec.WithLabelValues(name)
		m.seconds[route.Endpoint(end)] = seconds.WithLabelValues(name)
	}
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}

type gauge struct {
	name, help string
	value      func() float64
}

// gauges read what the store and the housekeeping know.
func gauges(store *storage.Store, h *house) []gauge {
	return []gauge{
		{"stored_bytes", "Bytes that blobs and uploads take, with the reserved ones.",
			func() float64 { return float64(store.Used()) }},
		{"reserved_bytes", "Bytes that uploads hold for what they have not written yet.",
			func() float64 { return float64(store.Reserved()) }},
		{"low", "1 while room runs low: nine tenths of the limit are used, or the disk has little more than must stay free.",
			func() float64 { return map[bool]float64{true: 1}[store.Low()] }},
		{"uploads", "Uploads under way, also those whose client is silent.",
			func() float64 { return float64(store.Uploads()) }},
		{"last_collection_timestamp_seconds", "When the last garbage collection of this process ended, 0 before the first.",
			func() float64 {
				if c := h.lastCollection(); c != nil {
					return float64(c.At.Unix())
				}
				return 0
			}},
		{"last_scrub_timestamp_seconds", "When all blobs were last read, 0 before the first time.", func() float64 {
			if last := h.last(); last != nil {
				return float64(last.At.Unix())
			}
			return 0
		}},
		{"last_scrub_problems", "Blobs and manifests that were then corrupt, missing or damaged.", func() float64 {
			if last := h.last(); last != nil {
				return float64(last.problems())
			}
			return 0
		}},
		{"scrub_read_bytes", "Bytes that the scrub under way has read, 0 while none runs.", func() float64 {
			if p := h.progress(); p != nil {
				return float64(p.ReadBytes)
			}
			return 0
		}},
	}
}
