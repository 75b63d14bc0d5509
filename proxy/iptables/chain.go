package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"hash/maphash"
	"net/netip"
	"strconv"
	"strings"

	"sluice/proxy"
)

// prefix begins the names of all chains that are ours.
const prefix = "SLUICE-"

// maxChainName is the longest name that a chain can have (XT_EXTENSION_MAXNAMELEN
// of linux/netfilter/x_tables.h, without the final NUL).
const maxChainName = 28

// table is one of the tables that have chains of ours.
type table uint8

// The tables, in the order in which they are written: what has no endpoint any more is
// answered before it is led nowhere.
const (
	filter table = iota
	nat
	tableCount
)

func (t table) String() string { return [...]string{"filter", "nat"}[t] }

// masqueradeMark is the packet mark of connections whose source is to be replaced: bit 14, as
// kube-proxy and the kubelet use it (kubelet's former --iptables-masquerade-bit), so that other programs leave it alone.
const masqueradeMark = "0x4000/0x4000"

// digest stands for the rules of a chain. Two different chains have the same once in 2^64.
type digest uint64

// add takes in one more rule.
func (d digest) add(rule []byte) digest {
	return d*0x9e3779b97f4a7c15 + digest(maphash.Bytes(seed, rule)) // 2^64 divided by the golden ratio: any odd number would do
}

// seed is that of all digests, which are compared with each other and never kept.
var seed = maphash.MakeSeed()

// chain is one chain while its rules are put together. The text is in the spelling and the
// order of iptables-save, so that what was written can be compared with what is there.
type chain struct {
	table  table
	name   string
	family proxy.Family
	text   []byte
	start  int // of the rule that is being put together
	rules  int
	digest digest
}

// begin starts a chain anew and keeps the memory.
func (c *chain) begin(t table, name string) {
	c.table, c.name, c.text, c.rules, c.digest = t, name, c.text[:0], 0, 0
}

// rule begins a rule; its parts are added by and in the order of the methods below, and end finishes it.
func (c *chain) rule() *chain {
	c.start = len(c.text)
	return c.add("-A ", c.name)
}

func (c *chain) end() {
	c.digest = c.digest.add(c.text[c.start:])
	c.text = append(c.text, '\n')
	c.rules++
}

func (c *chain) add(parts ...string) *chain {
	for _, p := range parts {
		c.text = append(c.text, p...)
	}
	return c
}

func (c *chain) addPrefix(option string, p netip.Prefix) *chain {
	if p.Bits() > 0 { // iptables-save leaves out what every packet matches
		c.text = p.AppendTo(append(c.text, option...))
	}
	return c
}

// from matches source addresses.
func (c *chain) from(p netip.Prefix) *chain { return c.addPrefix(" -s ", p) }

// to matches destination addresses.
func (c *chain) to(p netip.Prefix) *chain { return c.addPrefix(" -d ", p) }

func (c *chain) protocol(p proxy.Protocol) *chain { return c.add(" -p ", protocolName(p)) }

func protocolName(p proxy.Protocol) string { return strings.ToLower(p.String()) }

// ports matches destination ports from lo to hi.
func (c *chain) ports(p proxy.Protocol, lo, hi uint16) *chain {
	c.add(" -m ", protocolName(p), " --dport ")
	c.text = strconv.AppendUint(c.text, uint64(lo), 10)
	if hi != lo {
		c.text = strconv.AppendUint(append(c.text, ':'), uint64(hi), 10)
	}
	return c
}

// frontend matches what is sent to a frontend.
func (c *chain) frontend(f proxy.Frontend) *chain {
	return c.to(host(f.Addr)).protocol(f.Protocol).ports(f.Protocol, f.Port, f.Port)
}

// maxComment is the longest comment that we write (XT_MAX_COMMENT_LEN of linux/netfilter/xt_comment.h is 256).
const maxComment = 200

// comment adds a comment. It must have a character that makes iptables-save quote it, such as a
// slash or a blank. What could end the quotes or the line is replaced.
func (c *chain) comment(s string) *chain {
	c.add(` -m comment --comment "`)
	for i := range min(len(s), maxComment) {
		b := s[i]
		if b < ' ' || b > '~' || b == '"' || b == '\\' || b == '\'' {
			b = '?'
		}
		c.text = append(c.text, b)
	}
	return c.add(`"`)
}

// jump ends the rule: packets come back if nothing there decides on them.
func (c *chain) jump(target string) { c.add(" -j ", target).end() }

// gotoChain ends the rule: packets come back to where the last jump came from.
func (c *chain) gotoChain(name string) { c.add(" -g ", name).end() }

// dnat ends the rule: the connection goes to an endpoint.
func (c *chain) dnat(e netip.AddrPort) {
	c.text = e.AppendTo(append(c.text, " -j DNAT --to-destination "...))
	c.end()
}

func (c *chain) mark() { c.jump("MARK --set-xmark " + masqueradeMark) }

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hashLength is the number of characters of a hash in a name: 55 bits, so that ten thousand names
// collide with a chance of one in a billion.
const hashLength = 11

// hashed returns a short name for parts none of which has a NUL.
func hashed(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return nameEncoding.EncodeToString(sum[:8])[:hashLength]
}
