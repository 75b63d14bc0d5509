package metrics

import (
	"bytes"
	"math"
	"runtime"

	"github.com/VictoriaMetrics/metrics"

	"sluice/agent/source"
	"sluice/agent/sysctl"
	"sluice/agent/version"
	"sluice/store"
)

// sourceGauges say how the source is.
type sourceGauges struct{ synced, problems *metrics.Gauge }

// addOwn adds the agent's own metrics that the loop records.
func (r *Recorder) addOwn() {
	add := r.registry.add
	info := version.Get()
	add("sluice_build_info", Gauge, "Always 1; the labels say which build this is", "version", "go_version", "platform").
		gauge(info.Version, info.GoVersion, info.Platform).Set(1)
	services := add("sluice_services", Gauge, "Services that are served", ipFamily)
	frontends := add("sluice_frontends", Gauge, "Addresses with protocol and port at which Services are served", ipFamily)
	endpoints := add("sluice_endpoints", Gauge, "Endpoints that new connections can go to, added up over the ports of all Services", ipFamily)
	repairs := add("sluice_drift_repairs_total", Counter, "Times that another program had changed the rules and they were mended", ipFamily)
	for _, f := range r.o.Families {
		m, name := r.families[f], f.String()
		m.plans.services, m.plans.frontends, m.plans.endpoints = services.gauge(name), frontends.gauge(name), endpoints.gauge(name)
		m.repairs = repairs.counter(name)
	}
	r.source = sourceGauges{
		synced: add("sluice_source_synced", Gauge,
			"1 once the source has handed over everything there is since the start; until then what is served comes from the cache").gauge(),
		problems: add("sluice_source_problems", Gauge, "Things that the source cannot take up at present; sluice status names them").gauge(),
	}
}

// addCache adds what the store knows of itself.
func (r *Recorder) addCache() {
	if r.o.InStep != nil {
		r.registry.collected("sluice_cache_age_seconds", Gauge,
			"Time since what is known of a kind was in step with the API server; none for a kind that never was, nor with manifests, which are read as they are", func(p *page) {
				now, times := r.o.Now(), r.o.InStep()
				for _, kind := range source.Kinds {
					if at, ok := times[kind]; ok {
						p.value(math.Max(0, now.Sub(at).Seconds()), string(kind))
					}
				}
			}, "kind")
	}
	s := r.o.Store
	if s == nil {
		return
	}
	r.registry.collected("sluice_objects", Gauge, "Objects that are known", func(p *page) {
		counts := s.Counts()
		for _, kind := range source.Kinds {
			p.value(float64(counts[kind]), string(kind))
		}
	}, "kind")
	stat := func(name string, typ Type, help string, value func(store.Stats) float64) {
		r.registry.collected("sluice_cache_"+name, typ, help, func(p *page) { p.value(value(s.Stats())) })
	}
	stat("commits_total", Counter, "Commits to the cache file", func(s store.Stats) float64 { return float64(s.Commits) })
	stat("commit_failures_total", Counter, "Commits to the cache file that failed", func(s store.Stats) float64 { return float64(s.FailedCommits) })
	stat("written_bytes_total", Counter, "Bytes written to the cache file", func(s store.Stats) float64 { return float64(s.BytesWritten) })
	stat("last_commit_timestamp_seconds", Gauge, "When a commit succeeded last, in seconds since 1970; 0 for never since the start", func(s store.Stats) float64 {
		if s.LastCommit.IsZero() {
			return 0
		}
		return seconds(s.LastCommit)
	})
	stat("size_bytes", Gauge, "Size of the cache file; 0 if there is none", func(s store.Stats) float64 { return float64(s.FileSize) })
	stat("pending_changes", Gauge, "Groups of objects with changes that are not in the cache file yet", func(s store.Stats) float64 { return float64(s.Waiting) })
	stat("pending_bytes", Gauge, "Bytes of these changes", func(s store.Stats) float64 { return float64(s.WaitingBytes) })
	stat("bad_records_total", Counter, "Records of the cache file that could not be read", func(s store.Stats) float64 { return float64(s.BadRecords) })
}

// addFlows adds how full the kernel's connection tracking table is. While it is not in use, the metrics have no value.
func (r *Recorder) addFlows() {
	add := func(name, help string, value func(sysctl.Flows) int) {
		r.registry.collected(name, Gauge, help, func(p *page) {
			if flows, err := sysctl.ReadFlows(sysctl.Root); err == nil {
				p.value(float64(value(flows)))
			}
		})
	}
	add("sluice_conntrack_entries", "Flows in the connection tracking table of the node's network namespace", func(f sysctl.Flows) int { return f.Count })
	add("sluice_conntrack_limit", "Flows for which it has room (nf_conntrack_max): new connections are dropped when it is full, also those to ask for metrics; 0 is any number", func(f sysctl.Flows) int { return f.Max })
}

// addProcess adds what the Go runtime knows of itself.
func (r *Recorder) addProcess() {
	r.registry.add("go_info", Gauge, "Always 1; the label says which Go release the program was built with", "version").gauge(runtime.Version()).Set(1)
	r.registry.collected("go_goroutines", Gauge, "Goroutines that exist", func(p *page) { p.value(float64(runtime.NumGoroutine())) })
}

// writeProcess adds what the kernel knows of the process.
func writeProcess(to *bytes.Buffer) {
	metrics.WriteProcMetrics(to)
	metrics.WriteFDMetrics(to)
}
