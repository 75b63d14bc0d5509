package kube

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// User and password of a URL are credentials, as they are for every client, unless the kubeconfig has others.
func TestMoveUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cfg, want rest.Config }{
		{rest.Config{Host: "https://pi:x@192.0.2.1:6443"}, rest.Config{Host: "https://192.0.2.1:6443", Username: "pi", Password: "x"}},
		{rest.Config{Host: "https://pi:x@192.0.2.1/k", BearerToken: "t"}, rest.Config{Host: "https://192.0.2.1/k", BearerToken: "t"}},
		{rest.Config{Host: "192.0.2.1:6443"}, rest.Config{Host: "192.0.2.1:6443"}},
	} {
		moveUser(&tt.cfg)
		if got, want := tt.cfg, tt.want; got.Host != want.Host || got.Username != want.Username || got.Password != want.Password || got.BearerToken != want.BearerToken {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// What is wrong with a kubeconfig is told without what is secret in it; a file that is missing stays known as that.
func TestKubeconfigErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	for _, tt := range []struct{ rest, want string }{
		{"clusters: [{name: c, cluster: {server: 'https://a:secret@b c'}}]\nusers: []\n", "its server is no URL"},
		{"clusters: [{name: c, cluster: {server: 'https://b', proxy-url: 'a:secret@b'}}]\nusers: []\n", "its proxy-url is no URL"},
		{"clusters: [{name: c, cluster: {server: 'https://b', proxy-url: 'ftp://a:secret@b'}}]\nusers: []\n", "ftp://(hidden)@b"},
		{"users: [{name: u, user: {token: *secret}}]\n", "unknown anchor (hidden)"},
	} {
		_, _, err := parseKubeconfig("x", []byte(text+tt.rest))
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.rest, err, tt.want)
		}
	}
}
