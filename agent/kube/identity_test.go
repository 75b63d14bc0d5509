package kube

import "testing"

func TestServerAddr(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"https://192.0.2.1:6443":         "192.0.2.1",
		"https://192.0.2.1":              "192.0.2.1",
		"https://[2001:db8::1]:6443/k":   "2001:db8::1",
		"https://[::ffff:192.0.2.1]":     "192.0.2.1",
		"192.0.2.1:6443":                 "192.0.2.1",
		"[2001:db8::1]:6443":             "2001:db8::1",
		"2001:db8::1":                    "2001:db8::1",
		"https://kubernetes.example.com": "invalid IP",
		"":                               "invalid IP",
	} {
		if got := serverAddr(host).String(); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
}
