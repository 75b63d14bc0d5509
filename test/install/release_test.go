package install

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// program is a stand-in for a version of sluice. It is larger than a file system that is full. What it is to write into
// a configuration file it writes as it was given. With a configuration file that has the word conflict it does not.
func program(version string) string {
	return fmt.Sprintf(`#!/bin/sh
case $1 in
version) echo "sluice %[1]s" ;;
agent)
	given=
	config=${SLUICE_CONFIG-}
	while shift && [ $# -gt 0 ]; do
		case $1 in
		--no-such-flag) echo "sluice: unknown flag $1" >&2; echo 'See "sluice agent --help".' >&2; exit 2 ;;
		--idle) echo "sluice: $1 has no effect" >&2; given="$given $1" ;;
		--write-config-to)
			if grep -qs conflict "$config"; then echo "sluice: $config has what does not go with that" >&2; exit 2; fi
			{ [ -z "$given" ] || echo "given:$given"; env | grep '^SLUICE_' | grep -v CONFIG | sort |
				while IFS= read -r line; do if eval "[ \${${line%%%%=*}+set} ]"; then echo "$line"; fi; done; } >>"$2"
			exit 0
			;;
		--config | -config) config=$2; shift ;;
		--config=*) config=${1#*=} ;;
		*) given="$given $1" ;;
		esac
	done
	exec /bin/sleep 1000
	;;
cleanup) echo "cleanup by %[1]s" >>%[2]s/log ;;
esac
exit
%[3]s`, version, fakes, strings.Repeat("#\n", 1<<18))
}

// broken is a version whose agent does not start.
func broken(version string) string {
	return strings.Replace(program(version), "exec /bin/sleep 1000", "echo out of order >&2; exit 1", 1)
}

// release serves the files of releases, as a web server does.
type release struct {
	URL string

	mu    sync.Mutex
	files map[string]string
	asked []string
}

func newRelease(t *testing.T) *release {
	t.Helper()
	r := &release{files: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// ServeHTTP implements http.Handler.
func (r *release) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, req.URL.Path)
	text, ok := r.files[req.URL.Path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	if strings.HasPrefix(text, "cut off") {
		w.Header().Set("Content-Length", "1000000")
	}
	fmt.Fprint(w, text)
}

func (r *release) set(path, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[path] = text
}

// downloads returns what was asked for since the last call.
func (r *release) downloads() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	return asked
}

// put offers a program in a folder: "" is the top.
func (r *release) put(folder, arch, program string) {
	if folder != "" {
		folder = "/" + folder
	}
	r.set(folder+"/sluice-"+arch, program)
	r.set(folder+"/sha256sum-"+arch+".txt", fmt.Sprintf("%x  sluice-%s\n", sha256.Sum256([]byte(program)), arch))
}

// arch is what this machine is called in a release.
func arch() string {
	if runtime.GOARCH == "arm" {
		return "armv7"
	}
	return runtime.GOARCH
}

// repository reads a file of the repository.
func repository(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// install runs install.sh as curl does, with arguments for the agent.
func (m *machine) install(r *release, args ...string) (output string, code int) {
	m.t.Helper()
	home := m.env
	if r != nil {
		m.env = append([]string{"INSTALL_SLUICE_URL=" + r.URL}, m.env...)
	}
	defer func() { m.env = home }()
	return m.run(repository(m.t, "install.sh"), append(append([]string{}, m.shell...), append([]string{"-s", "-"}, args...)...)...)
}

// mustInstall fails the test if install.sh fails.
func (m *machine) mustInstall(r *release, args ...string) string {
	m.t.Helper()
	out, code := m.install(r, args...)
	if code != 0 || strings.Contains(out, "[ERROR]") {
		m.t.Fatalf("install.sh: exit code %d\n%s", code, out)
	}
	return out
}
