package registrycontroller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/wanted"
)

// metrics are what the registries of the control plane have, as last reported. It is safe for concurrent use.
type metrics struct {
	wanted, unknown, held, ready, free, stored, notAfter, renewedFrom, since *prometheus.Desc

	mu      sync.Mutex
	images  int
	strange int
	list    string
	members []registrystatus.Member
	ca      *authority.Status
}

func newMetrics() *metrics {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &metrics{
		wanted: d("dayone_replica_wanted_images", "Images that the registry of each control-plane node must hold."),
		unknown: d("dayone_replica_unknown_references", "Images that nodes name and that nobody has made, and lines of the "+
			"administrator's list that name no image."),
		held: d("dayone_replica_held_images", "Wanted images that the node's registry holds.", "node"),
		ready: d("dayone_replica_ready", "1 when the node is ready and its registry holds all wanted images, else 0.",
			"node"),
		free:   d("dayone_replica_free_bytes", "Free bytes of the disk of the node's registry, rounded down.", "node"),
		stored: d("dayone_replica_stored_bytes", "Bytes of images in the node's registry, rounded down.", "node"),
		notAfter: d("dayone_replica_ca_not_after_seconds", "When the CA of the registries expires, in seconds since 1970. "+
			"Not there where no agent of a node brings it."),
		renewedFrom: d("dayone_replica_ca_renewed_from_seconds", "When the CA is replaced although nobody asks, in seconds "+
			"since 1970."),
		since: d("dayone_replica_ca_step_since_seconds", "When the present step of a rotation of the CA began, in seconds "+
			"since 1970. Not there while none runs.", "step"),
	}
}

func (m *metrics) set(list wanted.List, members []registrystatus.Member, unknown int,
	ca *authority.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images, m.strange, m.list, m.members = len(list.Fetched()), unknown, list.Hash(), members
	m.ca = ca
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.wanted, m.unknown, m.held, m.ready, m.free, m.stored, m.notAfter, m.renewedFrom,
		m.since} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.wanted, float64(m.images))
	gauge(m.unknown, float64(m.strange))
	if m.ca != nil {
		gauge(m.notAfter, float64(m.ca.NotAfter.Unix()))
		gauge(m.renewedFrom, float64(m.ca.RenewedFrom.Unix()))
		if of := m.ca.Rotation; of != nil {
			gauge(m.since, float64(of.Since.Unix()), string(of.Step))
		}
	}
	for _, n := range m.members {
		gauge(m.held, float64(n.Report.Held), n.Name)
		ready := 0.0
		if n.Ready && n.Report.Ready && n.Report.List == m.list { // a node that is off does not take back its report
			ready = 1
		}
		gauge(m.ready, ready, n.Name)
		gauge(m.free, float64(n.Report.FreeBytes), n.Name)
		gauge(m.stored, float64(n.Report.StoredBytes), n.Name)
	}
}
