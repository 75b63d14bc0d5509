package iptables

import "strings"

// parsedRule is a rule of iptables-save in pieces.
type parsedRule struct {
	chain   string
	options []option
	// target is a target or a chain; empty if the rule has none. goes says that it is a chain that does not come back (-g).
	target        string
	goes          bool
	targetOptions []option
}

// option is one option of a match or a target, with its arguments.
type option struct {
	name    string // with its dashes; "-m" has the match's name for an argument
	negated bool
	args    []string
}

// arg returns the first argument.
func (o *option) arg() string {
	if len(o.args) == 0 {
		return ""
	}
	return o.args[0]
}

// parseRule takes a line of iptables-save to pieces. It is false if that is no rule.
func parseRule(line string) (r parsedRule, ok bool) {
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return r, false
	}
	r.chain, rest, _ = strings.Cut(rest, " ")
	to, negated := &r.options, false
	for rest != "" {
		var w string
		var quoted bool
		w, quoted, rest = word(rest)
		switch {
		case w == "":
		case !quoted && w == "!":
			negated = true
		case !quoted && (w == "-j" || w == "-g"):
			r.target, _, rest = word(rest)
			r.goes, to = w == "-g", &r.targetOptions
		case !quoted && w[0] == '-':
			*to = append(*to, option{name: w, negated: negated})
			negated = false
		case len(*to) > 0:
			last := &(*to)[len(*to)-1]
			last.args = append(last.args, w)
		}
	}
	return r, true
}

// word cuts off the next word, which quotes can make of several.
func word(s string) (w string, quoted bool, rest string) {
	s = strings.TrimLeft(s, " ")
	if !strings.HasPrefix(s, `"`) {
		w, rest, _ = strings.Cut(s, " ")
		return w, false, rest
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			return b.String(), true, s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), true, ""
}
