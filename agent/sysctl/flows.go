package sysctl

import "fmt"

// Flows says how full the kernel's connection tracking table is.
type Flows struct {
	// Count is how many flows the network namespace has, and Max how many each may have (nf_conntrack_max); 0 is any number.
	Count int `json:"count"`
	Max   int `json:"max"`
}

// Shares of a table in percent from which on it counts as filling and as full. The kernel drops the packets of new connections
// when there is no room (Documentation/networking/nf_conntrack-sysctl.rst); a burst fills the last of it in no time.
const (
	fillingPercent = 80
	fullPercent    = 95
)

// ReadFlows reads it from the parameters at root, of the network namespace of the calling thread. Without connection
// tracking the error is fs.ErrNotExist.
func ReadFlows(root string) (f Flows, err error) {
	o := Options{Root: root}
	if f.Count, err = o.read("net/netfilter/nf_conntrack_count"); err == nil {
		f.Max, err = o.read("net/netfilter/nf_conntrack_max")
	}
	return f, err
}

// Filling tells whether little room is left.
func (f Flows) Filling() bool { return f.reached(fillingPercent) }

// Full tells whether new connections are dropped, or will soon be.
func (f Flows) Full() bool { return f.reached(fullPercent) }

func (f Flows) reached(percent int) bool {
	return f.Max > 0 && int64(f.Count)*100 >= int64(f.Max)*int64(percent)
}

// String is how full it is.
func (f Flows) String() string {
	switch {
	case f.Max == 0:
		return fmt.Sprintf("%d tracked", f.Count)
	case f.Full():
		return fmt.Sprintf("%d of %d connections are in use: new ones are dropped", f.Count, f.Max)
	}
	return fmt.Sprintf("%d of %d connections are in use", f.Count, f.Max)
}

// Room is the command that makes room: for as many as are wanted, and twice as many as there is room for.
func (f Flows) Room(wanted int) string {
	return fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", max(wanted, 2*f.Max))
}
