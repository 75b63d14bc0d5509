package agent

import "testing"

// Whatever the limit is, more than half of the descriptors are left for rules, cache and API server.
func TestShareDescriptors(t *testing.T) {
	for _, limit := range []uint64{256, 1024, 8192, 32768, 1 << 20, 1<<64 - 1} {
		d := shareDescriptors(limit)
		if d.listeners < 1 || d.healthConns < 1 || d.localConns < 1 {
			t.Errorf("limit %d: %+v", limit, d)
		}
		const perLocalConn = 6
		if taken := uint64(2 * (2*d.listeners + d.healthConns + perLocalConn*d.localConns)); taken > limit/2 {
			t.Errorf("limit %d: %+v takes %d", limit, d, taken)
		}
	}
	if d := shareDescriptors(32768); d.listeners != maxListeners || d.healthConns != maxHealthConns {
		t.Errorf("with the unit's limit there are %+v", d)
	}
}
