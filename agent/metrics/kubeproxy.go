package metrics

import (
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// recorded is what is recorded for each family.
type recorded struct {
	sync, fullSync, partialSync *metrics.PrometheusHistogram
	lastSync, lastQueued        *metrics.Gauge
	syncFailures                *metrics.Counter
	programming                 *metrics.PrometheusHistogram
	flowCheck                   *metrics.PrometheusHistogram
	flowsDeleted                *metrics.Counter
	localListeners              *metrics.Gauge
	localFailures               *metrics.Counter
	plans                       planGauges
	repairs                     *metrics.Counter

	// triggers are when changes were triggered that are not in the kernel; see noteTrigger.
	triggers []time.Time
	inStep   bool
}

// changes counts what the source handed over.
type changes struct{ services, slices changeCount }

type changeCount struct {
	total   *metrics.Counter
	pending *metrics.Gauge
}

func (c *changeCount) note(changed bool) {
	c.total.Inc()
	if changed {
		c.pending.Inc()
	}
}

// ipFamily is the label of all that is there for each family, with the values IPv4 and IPv6.
const ipFamily = "ip_family"

// addKubeProxy adds what kube-proxy 1.37 has in the mode nftables, with its names, labels
// and buckets (pkg/proxy/metrics).
func (r *Recorder) addKubeProxy() {
	add := func(name string, typ Type, help string, labels ...string) *family {
		return r.registry.add("kubeproxy_"+name, typ, help, labels...)
	}
	sync := add("sync_proxy_rules_duration_seconds", Histogram, "Time that a write of rules took, also if it failed", ipFamily)
	full := add("sync_full_proxy_rules_duration_seconds", Histogram, "Time that a write took that compared all rules with the kernel's", ipFamily)
	partial := add("sync_partial_proxy_rules_duration_seconds", Histogram, "Time that a write of changes alone took", ipFamily)
	lastSync := add("sync_proxy_rules_last_timestamp_seconds", Gauge, "When rules were written last without error, in seconds since 1970", ipFamily)
	lastQueued := add("sync_proxy_rules_last_queued_timestamp_seconds", Gauge, "When a write was asked for last, in seconds since 1970", ipFamily)
	syncFailures := add("sync_proxy_rules_nftables_sync_failures_total", Counter, "Writes of rules that failed", ipFamily)
	cleanupFailures := add("sync_proxy_rules_nftables_cleanup_failures_total", Counter,
		"Always 0: chains go in the transaction that makes them unused, and not later", ipFamily)
	noLocal := add("sync_proxy_rules_no_local_endpoints_total", Gauge,
		"Service ports whose traffic policy (internal or external) is Local and that have endpoints, but none on this node", "traffic_policy", ipFamily)
	programming := add("network_programming_duration_seconds", Histogram,
		"Time from when the endpoints controller saw pods change (endpoints.kubernetes.io/last-change-trigger-time) until the rules were in the kernel", ipFamily)
	sliceChanges := changeCount{
		total:   add("sync_proxy_rules_endpoint_changes_total", Counter, "EndpointSlices that came, changed or went").counter(),
		pending: add("sync_proxy_rules_endpoint_changes_pending", Gauge, "Changes of EndpointSlices that are not in the kernel yet").gauge(),
	}
	serviceChanges := changeCount{
		total:   add("sync_proxy_rules_service_changes_total", Counter, "Services that came, changed or went").counter(),
		pending: add("sync_proxy_rules_service_changes_pending", Gauge, "Changes of Services that are not in the kernel yet").gauge(),
	}
	r.changes = changes{services: serviceChanges, slices: sliceChanges}
	flowCheck := add("conntrack_reconciler_sync_duration_seconds", Histogram, "Time that a look for flows to endpoints that are gone took", ipFamily)
	flowsDeleted := add("conntrack_reconciler_deleted_entries_total", Counter, "Flows deleted as their endpoint was gone", ipFamily)
	localListeners := add("nftables_localhost_nodeport_listeners", Gauge, "Listeners for NodePorts at the loopback address", ipFamily)
	localFailures := add("nftables_localhost_nodeport_listener_creation_failures_total", Counter, "Attempts to listen for a NodePort at the loopback address that failed", ipFamily)
	r.addProbes()

	syncBuckets := metrics.ExponentialBuckets(0.001, 2, 15)
	programmingBuckets := slices.Concat([]float64{0}, metrics.LinearBuckets(0.25, 0.25, 2), metrics.LinearBuckets(1, 1, 59),
		metrics.LinearBuckets(60, 5, 12), metrics.LinearBuckets(120, 30, 7))
	for _, f := range r.o.Families {
		name := f.String()
		cleanupFailures.counter(name)
		r.families[f] = &recorded{
			sync: sync.histogram(syncBuckets, name), fullSync: full.histogram(syncBuckets, name), partialSync: partial.histogram(syncBuckets, name),
			lastSync: lastSync.gauge(name), lastQueued: lastQueued.gauge(name), syncFailures: syncFailures.counter(name),
			programming: programming.histogram(programmingBuckets, name),
			flowCheck:   flowCheck.histogram(syncBuckets, name), flowsDeleted: flowsDeleted.counter(name),
			localListeners: localListeners.gauge(name), localFailures: localFailures.counter(name),
			plans: planGauges{noLocalInternal: noLocal.gauge("internal", name), noLocalExternal: noLocal.gauge("external", name)},
		}
	}
}

// addProbes adds the counters of what package health answered.
func (r *Recorder) addProbes() {
	if r.o.Health == nil {
		return
	}
	add := func(name, help string, answers func() (ok, unavailable uint64)) {
		r.registry.collected("kubeproxy_"+name, Counter, help, func(p *page) {
			ok, unavailable := answers()
			p.value(float64(ok), "200")
			p.value(float64(unavailable), "503")
		}, "code")
	}
	add("proxy_healthz_total", "Answers of /healthz by their HTTP status", func() (uint64, uint64) {
		a := r.o.Health.Probes().Healthz
		return a.OK, a.Unavailable
	})
	add("proxy_livez_total", "Answers of /livez by their HTTP status", func() (uint64, uint64) {
		a := r.o.Health.Probes().Livez
		return a.OK, a.Unavailable
	})
}
