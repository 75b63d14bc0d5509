package proxy

import "slices"

// equal tells whether two routes do the same, wherever their parts are stored.
func (r *Route) equal(o *Route) bool {
	if r == o {
		return true
	}
	if r == nil || o == nil {
		return false
	}
	return r.Port == o.Port &&
		r.Kind == o.Kind &&
		r.Masquerade == o.Masquerade &&
		r.Affinity == o.Affinity &&
		r.WhenEmpty == o.WhenEmpty &&
		(r.SourceRanges == nil) == (o.SourceRanges == nil) && // none is not the same as all
		slices.Equal(r.SourceRanges, o.SourceRanges) &&
		r.Pool.equal(o.Pool) &&
		r.LocalPool.equal(o.LocalPool) &&
		slices.Equal(r.Others, o.Others)
}

func (p *Pool) equal(o *Pool) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.AffinityID == o.AffinityID && slices.Equal(p.Slots, o.Slots)
}
