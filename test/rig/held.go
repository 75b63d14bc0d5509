package rig

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"sluice/proxy"
)

// Held is a connection that stays open.
type Held struct {
	text, endpoint string
	conn           net.Conn
	in             *bufio.Reader
}

// Hold opens TCP connections, one for each probe and family, until the test ends.
func (r *Rig) Hold(texts ...string) (all []*Held) {
	r.T.Helper()
	for _, text := range texts {
		for _, f := range proxy.Families {
			probe := r.Probe(f, text)
			conn, err := probe.From.Dial(r.T.Context(), "tcp", probe.To.String())
			if err != nil {
				r.T.Fatalf("%v: %s: %v", f, text, err)
			}
			r.T.Cleanup(func() { conn.Close() })
			h := &Held{text: fmt.Sprintf("%v: %s", f, text), conn: conn, in: bufio.NewReader(conn)}
			h.endpoint, err = h.ask()
			if err != nil {
				r.T.Fatalf("%s: %v", h.text, err)
			}
			all = append(all, h)
		}
	}
	return all
}

// ask sends a line and returns the answer.
func (h *Held) ask() (string, error) {
	if err := h.conn.SetDeadline(time.Now().Add(ClientPatience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(h.conn, "?"); err != nil {
		return "", err
	}
	return h.in.ReadString('\n')
}

// StillOpen holds that the connection goes on, to where it went before.
func (h *Held) StillOpen(t *testing.T) {
	t.Helper()
	if answer, err := h.ask(); err != nil || answer != h.endpoint {
		t.Errorf("%s: answer %q, error %v; before %q", h.text, answer, err, h.endpoint)
	}
}
