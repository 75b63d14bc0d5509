package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

func commands() []*cli.Command {
	return []*cli.Command{Agent(), Status(), Get(), Check(), Cleanup(), Version(), Completion()}
}

// sluice runs a command as a shell would.
func sluice(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), commands(), append([]string{"sluice"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

type provider struct {
	healthy bool
	err     error
}

func (p provider) Status(context.Context) (status.Status, error) {
	return status.Status{Healthy: p.healthy, Node: "pi", Started: time.Now()}, p.err
}

func (p provider) Services(context.Context) ([]status.Service, error) {
	return []status.Service{{Namespace: "default", Name: "kubernetes"}, {Namespace: "shop", Name: "web"}}, p.err
}

func (p provider) Endpoints(context.Context) ([]status.Endpoint, error) {
	return []status.Endpoint{{Namespace: "shop", Service: "web", Address: netip.MustParseAddrPort("10.42.0.1:80")}}, p.err
}

// serve answers for p and returns the socket.
func serve(t *testing.T, p status.Provider) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s.sock")
	l, err := status.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- status.Serve(ctx, l, p, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestExitCodes(t *testing.T) {
	healthy := serve(t, provider{healthy: true})
	ill := serve(t, provider{})
	broken := serve(t, provider{err: errors.New("out of order")})
	none := filepath.Join(t.TempDir(), "none.sock")
	tests := []struct {
		args   string
		code   int
		stderr string // a part of it; empty: it says nothing
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"--version", 0, ""},
		{"help get", 0, ""},
		{"agent --help", 0, ""},
		{"get endpoints web --help", 0, ""},
		{"get svc -h", 0, ""},
		{"version", 0, ""},
		{"completion bash", 0, ""},
		{"status --socket " + healthy, 0, ""},
		{"get services --socket " + healthy, 0, ""},

		{"status --socket " + ill, 1, ""},
		{"status --socket " + broken, 1, "out of order"},
		{"get endpoints --socket " + broken, 1, "out of order"},
		{"get svc nosuch --socket " + healthy, 1, `service "nosuch" in any namespace`},
		{"get svc web -n default --socket " + healthy, 1, `service "web" in namespace default`},
		{"cleanup --socket " + healthy, 1, "another sluice agent"},

		{"agnet", 2, `unknown command "agnet"`},
		{"--no-such-flag", 2, "no-such-flag"},
		{"help agnet", 2, "agnet"},
		{"agent --no-such-flag", 2, `See "sluice agent --help"`},
		{"agent --manifests", 2, "needs an argument"},
		{"agent --manifests /m extra", 2, `"extra"`},
		{"agent --manifests /m --sync-period soon", 2, `--sync-period: "soon"`},
		{"agent --manifests /m --proxy-mode ipvs", 2, "auto, nftables, iptables"},
		{"agent --hostname-override a --node-name b --manifests /m", 2, "two forms of the same flag"},
		{"status extra", 2, `"extra"`},
		{"status -o wide", 2, "json, yaml"},
		{"get", 2, "services or endpoints"},
		{"get pods", 2, `"pods"`},
		{"get svc a b", 2, `"b"`},
		{"get svc -o table", 2, "wide, json, yaml"},
		{"get svc -A -n shop", 2, "exclude each other"},
		{"cleanup all", 2, `"all"`},
		{"check all", 2, `"all"`},
		{"check -o wide", 2, "json, yaml"},
		{"version -o wide", 2, "json, yaml"},
		{"completion", 2, "bash, zsh or fish"},
		{"completion tcsh", 2, "bash, zsh or fish"},

		{"status --socket " + none, 3, none},
		{"get services --socket " + none, 3, "sluice agent"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := sluice(t, strings.Fields(test.args)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(stderr, test.stderr) || test.stderr == "" && stderr != "" {
				t.Errorf("standard error is %q, want %q in it", stderr, test.stderr)
			}
			if code == exitUsage && stdout != "" {
				t.Errorf("with an error of usage, standard output is %q", stdout)
			}
		})
	}
}

func TestGet(t *testing.T) {
	socket := serve(t, provider{})
	tests := []struct {
		args string
		want []string // fields of the first two columns
	}{
		{"services", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"-o wide svc", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"svc web -o wide", []string{"NAMESPACE NAME", "shop web"}},
		{"svc -n shop", []string{"NAMESPACE NAME", "shop web"}},
		{"svc -A", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"endpoints", []string{"NAMESPACE SERVICE", "shop web"}},
		{"ep web --namespace=shop", []string{"NAMESPACE SERVICE", "shop web"}},
		{"ep -n default", nil},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := sluice(t, append([]string{"get", "--socket", socket}, strings.Fields(test.args)...)...)
			var got []string
			for line := range strings.Lines(stdout) {
				got = append(got, strings.Join(strings.Fields(line)[:2], " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || code != 0 {
				t.Errorf("exit code %d, %q (-want +got):\n%s", code, stderr, diff)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	socket := serve(t, provider{healthy: true})
	_, stdout, _ := sluice(t, "get", "svc", "web", "-o", "json", "--socket", socket)
	var list status.List[status.Service]
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Errorf("get -o json: %v, got\n%s", err, stdout)
	}
	_, stdout, _ = sluice(t, "get", "ep", "-o", "yaml", "-n", "none", "--socket", socket)
	if stdout != "items: []\n" {
		t.Errorf("get -o yaml of nothing: got\n%s", stdout)
	}
	_, stdout, _ = sluice(t, "status", "-o", "yaml", "--socket", socket)
	if !strings.Contains(stdout, "healthy: true\n") || !strings.Contains(stdout, "node: pi\n") {
		t.Errorf("status -o yaml: got\n%s", stdout)
	}
	_, stdout, _ = sluice(t, "version", "-o", "json")
	var version map[string]string
	if err := json.Unmarshal([]byte(stdout), &version); err != nil || version["goVersion"] == "" || version["platform"] == "" {
		t.Errorf("version -o json: %v, got\n%s", err, stdout)
	}
}

func TestCompletion(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	socket := serve(t, provider{})
	for args, want := range map[string]string{
		"get":                                "services endpoints",
		"get svc --socket " + socket:         "kubernetes web",
		"get svc -n shop --socket " + socket: "web",
		"get svc web":                        "",
		"agent --sync":                       "--sync-period",
		"completion":                         "bash zsh fish",
		"completion bash":                    "",
	} {
		os.Args = append(append([]string{"sluice"}, strings.Fields(args)...), completionFlag) // the cli library looks there
		code, stdout, stderr := sluice(t, os.Args[1:]...)
		if got := strings.Join(strings.Fields(stdout), " "); got != want || code != 0 {
			t.Errorf("%s: exit code %d, %q, got %q, want %q", args, code, stderr, got, want)
		}
	}
}

func TestSocketOfConfiguration(t *testing.T) {
	t.Setenv("SLUICE_SOCKET", serve(t, provider{healthy: true}))
	if code, _, stderr := sluice(t, "status"); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, name := range []string{"", "agent", "status", "get", "check", "cleanup", "version", "completion"} {
		code, stdout, stderr := sluice(t, append(strings.Fields(name), "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit code %d, %q", name, code, stderr)
		}
		for _, section := range []string{"NAME:", "USAGE:", "Examples:", "OPTIONS:"} {
			if !strings.Contains(stdout, section) {
				t.Errorf("%q: no %s", name, section)
			}
		}
		for line := range strings.Lines(stdout) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > 80 || strings.HasSuffix(line, " ") {
				t.Errorf("%q: %d bytes: %q", name, len(line), line)
			}
		}
	}
}
