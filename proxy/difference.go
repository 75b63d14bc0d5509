package proxy

// Difference is one thing of ours that is in the kernel and not as it should be. The texts are what `nft list ruleset` or
// iptables-save print, as far as that is of one line.
type Difference struct {
	// What it is: table, set, chain, rule, element, or jump (iptables: a rule of ours in a chain of the system).
	What string `json:"what"`
	// Where it is: table, or table and chain or set, like "ip sluice nat-prerouting" or "ip nat SLUICE-SERVICES".
	Where string `json:"where"`
	// Want is empty if it should not be there, Have if it is not there.
	Want string `json:"want,omitempty"`
	Have string `json:"have,omitempty"`
}

// String is the difference on one line.
func (d Difference) String() string {
	s := d.What + " " + d.Where
	switch {
	case d.Have == "":
		return s + ": missing: " + d.Want
	case d.Want == "":
		return s + ": not ours: " + d.Have
	}
	return s + ": should be " + d.Want + ", is " + d.Have
}
