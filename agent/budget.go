package agent

import (
	"cmp"
	"math"
	"runtime/debug"
	"slices"

	"sluice/proxy"
)

// budget bounds the memory that all Services together take in the agent and in the kernel: whoever may create
// Services could else have the agent killed for its memory, again and again. What does not fit is not
// served, the youngest Services first, so that Services that work go on whatever comes later.
type budget struct {
	limit int64
	used  int64
	known map[proxy.ServiceName]*cost
	// served and left hold the Services that fit and those that do not, the oldest first.
	served, left []*cost
	// stale says that others than those could fit by now.
	stale bool
	// fresh counts those that were left out since it was told last.
	fresh int
}

// cost is what a Service takes.
type cost struct {
	name    proxy.ServiceName
	created int64
	weight  int64
	left    bool
}

// A frontend of a Service weighs frontendWeight, and each endpoint and source range of it 1, which stands for
// weightBytes of memory: what agent and kernel take at the peak, when all of it is written for the first time.
const (
	frontendWeight = 4
	weightBytes    = 256
)

// newBudget takes Go's memory limit (GOMEMLIMIT, which the unit sets) for what there is, or else half of the machine's memory.
func newBudget(ram uint64) budget {
	bytes := debug.SetMemoryLimit(-1)
	if bytes == math.MaxInt64 && ram > 0 {
		bytes = int64(ram / 2)
	}
	return budget{limit: bytes / weightBytes}
}

// weigh tells what a Service's plan weighs.
func weigh(plan *proxy.ServicePlan) (weight int64) {
	for i := range plan.Frontends {
		r := plan.Frontends[i].Route
		weight += frontendWeight + int64(len(r.SourceRanges)+len(r.Others))
		for _, pool := range []*proxy.Pool{r.Pool, r.LocalPool} {
			if pool != nil {
				weight += int64(len(pool.Slots))
			}
		}
	}
	return weight
}

func (c *cost) compare(o *cost) int {
	return cmp.Or(cmp.Compare(c.created, o.created), c.name.Compare(o.name))
}

// set takes in what a Service weighs now; 0 is nothing, or no Service. It tells whether the Service is left out, and which others are from now on.
func (b *budget) set(name proxy.ServiceName, created, weight int64) (left bool, evicted []proxy.ServiceName) {
	old := b.known[name]
	if old != nil && old.created == created && old.weight == weight {
		return old.left, nil
	}
	wasLeft := old != nil && old.left
	if old != nil {
		b.forget(old)
		b.stale = len(b.left) > 0
	}
	if weight == 0 {
		return false, nil
	}
	if b.known == nil {
		b.known = map[proxy.ServiceName]*cost{}
	}
	c := &cost{name: name, created: created, weight: weight}
	b.known[name] = c
	b.put(&b.served, c)
	b.used += weight
	for b.limit > 0 && b.used > b.limit && len(b.served) > 0 {
		youngest := b.served[len(b.served)-1]
		b.served = b.served[:len(b.served)-1]
		b.used -= youngest.weight
		youngest.left = true
		b.put(&b.left, youngest)
		if youngest != c {
			evicted = append(evicted, youngest.name)
			b.stale = true
		}
		if youngest != c || !wasLeft {
			b.fresh++
		}
	}
	return c.left, evicted
}

func (b *budget) forget(c *cost) {
	delete(b.known, c.name)
	list := &b.served
	if c.left {
		list = &b.left
	} else {
		b.used -= c.weight
	}
	if i, found := slices.BinarySearchFunc(*list, c, (*cost).compare); found {
		*list = slices.Delete(*list, i, i+1)
	}
}

func (b *budget) put(list *[]*cost, c *cost) {
	i, _ := slices.BinarySearchFunc(*list, c, (*cost).compare)
	*list = slices.Insert(*list, i, c)
}

// settle looks which Services fit, from the oldest to the youngest, and names those that are taken in again by that, and those that are left out.
// Until then set leaves out more than it must.
func (b *budget) settle() (admitted, evicted []proxy.ServiceName) {
	if !b.stale {
		return nil, nil
	}
	all := slices.Concat(b.served, b.left)
	slices.SortFunc(all, (*cost).compare)
	b.stale, b.used, b.served, b.left = false, 0, b.served[:0], b.left[:0]
	for _, c := range all {
		left := b.used+c.weight > b.limit
		switch {
		case left && !c.left:
			evicted = append(evicted, c.name)
			b.fresh++
		case !left && c.left:
			admitted = append(admitted, c.name)
		}
		if c.left = left; left {
			b.left = append(b.left, c)
		} else {
			b.served = append(b.served, c)
			b.used += c.weight
		}
	}
	return admitted, evicted
}

// notFitting says in a plan that its Service does not fit.
const notFitting = "nothing of it is served: all Services together, with their endpoints, need more memory than this agent may use, and older ones have it; " +
	"delete what is not needed, or give the agent more (GOMEMLIMIT and MemoryMax of its unit)"

// leftOut is what is planned for a Service that does not fit.
func leftOut(plan *proxy.ServicePlan) *proxy.ServicePlan {
	return &proxy.ServicePlan{Name: plan.Name, Created: plan.Created, Ignored: []string{notFitting}}
}
