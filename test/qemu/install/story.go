package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/test/cluster"
	"sluice/test/tempdir"
)

// story is the machine, the server, and the releases.
type story struct {
	guest   *guest
	cluster *cluster.Cluster
	install string // the command that installs, up to its arguments
	begun   time.Time
	before  string // the machine's files before sluice
}

func (s *story) say(format string, args ...any) {
	fmt.Printf("%7.1f s  %s\n", time.Since(s.begun).Seconds(), strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n", "\n           "))
}

func run(ctx context.Context, machine, release string, cuts int, clock bool) (err error) {
	dir, err := tempdir.New("sluice-install-")
	if err != nil {
		return err
	}
	defer dir.Close()
	s := &story{begun: time.Now()}
	if s.guest, err = newGuest(ctx, machine, dir.Path, clock); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.guest.close()) }()
	if s.cluster, err = cluster.New(ctx, cluster.Options{Loopback: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.Close()) }()
	if err := fill(ctx, s.cluster); err != nil {
		return err
	}
	if err := s.serveReleases(ctx, release, dir.Path); err != nil {
		return err
	}
	for _, chapter := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"switch on", s.switchOn},
		{"install", s.installFirst},
		{"restart without the API server", s.restartAlone},
		{"power cuts", func(ctx context.Context) error { return s.powerCuts(ctx, cuts) }},
		{"upgrade and downgrade", s.upgrade},
		{"uninstall", s.uninstall},
	} {
		s.say("== %s", chapter.name)
		if err := chapter.run(ctx); err != nil {
			log, _ := s.guest.run(ctx, "journalctl -b -u sluice --no-pager | tail -n 30; systemctl status sluice --no-pager || true")
			return fmt.Errorf("%s: %w\n%s", chapter.name, err, log)
		}
	}
	s.say("== all went well")
	return nil
}
