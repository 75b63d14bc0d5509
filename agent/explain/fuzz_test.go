package explain

import (
	"errors"
	"strings"
	"testing"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/proxy/nft"
)

// FuzzExplain: whatever is asked, the answer is paths that can be written, or says what is wrong with the question.
func FuzzExplain(f *testing.F) {
	for _, q := range [][3]string{{"shop/web:http", "", ""}, {"10.43.0.1:80", "10.42.0.5", "tcp"}, {"[fd00::1]:80", "outside", "SCTP"}, {"web:30080", "host", ""},
		{"10.42.1.5", "pod", "udp"}, {"::ffff:10.43.0.1", "::ffff:10.42.0.5", ""}, {"/:", "0.0.0.0", "x"}, {"fe80::1%eth0:80", "fe80::1%eth0", ""}} {
		f.Add(q[0], q[1], q[2])
	}
	all := views()
	all[0].Rules.Planned = nft.Planned(all[0].State)
	f.Fuzz(func(t *testing.T, target, from, protocol string) {
		answers, err := Explain(t.Context(), status.Question{Target: target, From: from, Protocol: protocol}, all, lookup)
		if err != nil {
			if _, ok := errors.AsType[*status.QuestionError](err); !ok {
				t.Fatalf("%q from %q by %q: %v", target, from, protocol, err)
			}
			return
		}
		paths := Block(answers, func(proxy.Passage) ([]proxy.Block, error) { return nil, nil })
		var b strings.Builder
		if err := status.WritePaths(&b, paths); err != nil || len(paths) == 0 || b.Len() == 0 {
			t.Fatalf("%q from %q by %q: %d paths, %v", target, from, protocol, len(paths), err)
		}
	})
}
