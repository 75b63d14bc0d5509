package kube

import (
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/test/cluster"
)

// TestCheck asks a real server, as a node's proxy, with a right less, and as nobody.
func TestCheck(t *testing.T) {
	c := newControl(t)
	check := func(token string) Access {
		t.Helper()
		c.write(c.kubeconfig, c.TokenKubeconfig(token))
		a, err := Check(t.Context(), c.kubeconfig, "pi")
		c.must(err)
		if a.Kubeconfig != c.kubeconfig || a.Server != c.URL {
			t.Errorf("%+v", a)
		}
		return a
	}
	if a := check(cluster.ProxyToken); !slices.Equal(a.Allowed, []string{"services", "endpointslices", "nodes", "servicecidrs"}) || len(a.Problems)+len(a.Lesser) > 0 {
		t.Errorf("as a proxy: %+v", a)
	}
	if a := check("nobody"); len(a.Allowed) > 0 || len(a.Problems) != 1 || !strings.Contains(a.Problems[0], "401") {
		t.Errorf("as nobody: %+v", a)
	}

	// The role without slices. Autoreconciliation happens at the server's start alone.
	_, err := c.Do(t.Context(), http.MethodPut, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node-proxier", map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "system:node-proxier"},
		"rules": []map[string]any{{"apiGroups": []string{"", "networking.k8s.io"}, "resources": []string{"services", "nodes", "servicecidrs"}, "verbs": []string{"list", "watch"}}},
	})
	c.must(err)
	var a Access
	c.eventually("the change of the role", func() bool {
		a = check(cluster.ProxyToken)
		return len(a.Problems) > 0
	})
	if len(a.Allowed) != 3 || len(a.Problems) != 1 || !strings.Contains(a.Problems[0], "endpointslices") || !strings.Contains(a.Problems[0], "403") ||
		!strings.HasSuffix(a.Problems[0], "; bind the ClusterRole system:node-proxier to it") {
		t.Errorf("without slices: %+v", a)
	}
}

func TestCheckKubeconfig(t *testing.T) {
	t.Parallel()
	if _, err := Check(t.Context(), filepath.Join(t.TempDir(), "none"), "pi"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a kubeconfig that is not there: %v", err)
	}
}
