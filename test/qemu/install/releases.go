package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

// otherVersion is a folder of the releases: the same source, built in another way.
const otherVersion = "v0.0.0-other"

// serveReleases serves the release folder over HTTP, and another version below it.
func (s *story) serveReleases(ctx context.Context, release, dir string) error {
	m := s.guest.boot.Kernel.Machine
	if _, err := os.Stat(filepath.Join(release, "install.sh")); err != nil {
		return fmt.Errorf("%w; run `make release` first", err)
	}
	releases := filepath.Join(dir, "releases")
	if err := os.CopyFS(releases, os.DirFS(release)); err != nil {
		return err
	}
	other := filepath.Join(releases, otherVersion)
	program := filepath.Join(other, "sluice-"+m.Release)
	if err := errors.Join(os.Mkdir(other, 0o755), m.Build(ctx, program, "build", ".")); err != nil {
		return err
	}
	hash := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("sha256sum sluice-%s >sha256sum-%[1]s.txt", m.Release))
	hash.Dir = other
	if out, err := hash.CombinedOutput(); err != nil {
		return fmt.Errorf("hash the other version: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, http.FileServer(http.Dir(releases)))
	url := fmt.Sprintf("http://%s:%d", hostAddress, l.Addr().(*net.TCPAddr).Port)
	s.install = fmt.Sprintf("export INSTALL_SLUICE_URL=%s\ncurl -sSfL %[1]s/install.sh | ", url)
	return nil
}
