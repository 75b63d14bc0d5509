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

// Differing cuts off what two lists have in common at their beginning and at their end. What is left is not as it should be.
func Differing[T any](want, have []T, same func(a, b T) bool) (missing, surplus []T) {
	for len(want) > 0 && len(have) > 0 && same(want[0], have[0]) {
		want, have = want[1:], have[1:]
	}
	for len(want) > 0 && len(have) > 0 && same(want[len(want)-1], have[len(have)-1]) {
		want, have = want[:len(want)-1], have[:len(have)-1]
	}
	return want, have
}
