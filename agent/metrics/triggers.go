package metrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/agent/source"
	"sluice/proxy"
)

// maxTriggers bounds how many are kept while the kernel cannot be written to.
const maxTriggers = 1000

// noteTrigger keeps the time of a slice's change until it is in the kernel. As in
// kube-proxy, what changed before the start is not measured, nor is a slice that goes: its
// time is that of an earlier change.
func (r *Recorder) noteTrigger(c source.Change) {
	slice, ok := c.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	var m *recorded
	switch slice.AddressType {
	case discoveryv1.AddressTypeIPv4:
		m = r.of(proxy.IPv4)
	case discoveryv1.AddressTypeIPv6:
		m = r.of(proxy.IPv6)
	}
	if m == nil || len(m.triggers) >= maxTriggers {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err == nil && at.After(r.started) {
		m.triggers = append(m.triggers, at)
	}
}
