package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/pty"
)

const soon = 10 * time.Second

// source answers with many Services, of which number 7 has 3 new connections at each reading.
type source struct {
	mu       sync.Mutex
	readings int
	err      error
}

func (s *source) read(context.Context) (status.Counts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := at(s.readings)
	for i := range 100 {
		one := status.ServiceCounts{Namespace: "shop", Name: fmt.Sprintf("s%02d", i), Endpoints: ready(1, 1)}
		if i == 7 {
			one.Connections = uint64(3 * s.readings)
		}
		c.Items = append(c.Items, one)
	}
	if s.err == nil {
		s.readings++
	}
	return c, s.err
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// start runs the table in this process. wait ends it and returns its error.
func start(t *testing.T, p *pty.Terminal, s *source) (end func(), wait func() error) {
	t.Helper()
	keys, err := os.OpenFile(p.Slave.Name(), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Live(ctx, keys, p.Slave, Options{Read: s.read, Interval: 50 * time.Millisecond, Sort: status.ByRate})
	}()
	t.Cleanup(cancel)
	return cancel, func() error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(soon):
			t.Fatal("the table does not end")
			return nil
		}
	}
}

func starts(prefix string) func(string) bool {
	return func(text string) bool {
		_, rows, _ := strings.Cut(text, "1ST-BYTES\n")
		return strings.HasPrefix(rows, prefix)
	}
}

func TestLive(t *testing.T) {
	p, s := pty.New(t, 80, 24), &source{}
	fmt.Fprint(p.Slave, "$ sluice top")
	before := p.State()
	_, wait := start(t, p, s)
	lines := p.Await(soon, "a rate", starts("shop/s07                                    3.0"))
	if want := "pi, nftables: 100 Services, 3.0 new connections/s over 1.0s"; lines[0] != want {
		t.Errorf("%q, want %q", lines[0], want)
	}
	if want := "[c rate]  t total   e endpoints   b bytes   n name   q quit   1-21"; lines[23] != want {
		t.Errorf("%q, want %q", lines[23], want)
	}
	if got := p.State(); got.Mode == before.Mode || !got.Other || !got.HiddenCursor {
		t.Errorf("the terminal is not taken over: %+v", got)
	}
	// What changes costs some bytes, the whole screen some 2000.
	written := p.Written()
	s.mu.Lock()
	from := s.readings
	s.mu.Unlock()
	p.Await(soon, "ten readings", func(string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.readings >= from+10
	})
	if n := (p.Written() - written) / 10; n == 0 || n > 40 {
		t.Errorf("%d bytes are written for each reading", n)
	}
	p.Type("n")
	p.Await(soon, "by name", starts("shop/s00"))
	p.Type("\x1b[B\x1b[Bj")
	p.Await(soon, "three lines down", starts("shop/s03"))
	p.Type("\x1b[6~")
	p.Await(soon, "a page down", starts("shop/s23"))
	fmt.Fprint(p.Slave, "\x1b[1;1Hnoise")
	p.Await(soon, "noise", func(text string) bool { return strings.HasPrefix(text, "noise") })
	p.Type("\f")
	p.Await(soon, "no noise", func(text string) bool { return strings.HasPrefix(text, "pi, nftables") && starts("shop/s23")(text) })
	p.Type("G")
	p.Await(soon, "the end", func(text string) bool { return strings.Contains(text, "shop/s99") && strings.Contains(text, "80-100") })
	p.Type("\x1b[H")
	p.Await(soon, "the begin", starts("shop/s00"))
	for _, size := range [][2]int{{40, 10}, {20, 5}, {8, 3}, {1, 1}, {132, 50}, {80, 24}} {
		p.Resize(size[0], size[1])
		syscall.Kill(os.Getpid(), syscall.SIGWINCH) // the test has no controlling terminal
		width, height := size[0], size[1]
		p.Await(soon, fmt.Sprintf("%d columns and %d lines", width, height), func(text string) bool {
			lines := strings.Split(text, "\n")
			return len(lines) == height && strings.HasPrefix(lines[0], "pi, nftables: 100"[:min(width, 17)]) &&
				(height < 5 || strings.HasPrefix(lines[2], "shop/s00") && strings.HasPrefix(lines[height-1], " c rate   t total"[:min(17, width)])) &&
				(height < 50 || strings.HasPrefix(lines[48], "shop/s46"))
		})
	}
	s.fail(errors.New("no agent"))
	p.Await(soon, "the error", func(text string) bool {
		return strings.Contains(text, "\nno agent\nSERVICE") && strings.Contains(text, "shop/s00")
	})
	s.fail(nil)
	p.Await(soon, "no error", func(text string) bool { return !strings.Contains(text, "no agent") })
	p.Type("q")
	if err := wait(); err != nil {
		t.Error(err)
	}
	p.AwaitState(soon, before)
	if got := p.Lines()[0]; !strings.HasPrefix(got, "$") { // the rest was cut off by the narrowest size
		t.Errorf("the screen of before shows %q", got)
	}
}

func TestLiveEndsWithItsContext(t *testing.T) {
	p := pty.New(t, 80, 24)
	before := p.State()
	end, wait := start(t, p, &source{})
	p.Await(soon, "the table", starts("shop/s"))
	end()
	if err := wait(); err != nil {
		t.Error(err)
	}
	p.AwaitState(soon, before)
	_, wait = start(t, p, &source{err: errors.New("no agent")})
	if err := wait(); err == nil {
		t.Error("no error without an agent")
	}
	p.AwaitState(soon, before)
}

const panics = "SLUICE_TEST_PANICS"

// TestPanic runs itself on a terminal; there the second reading panics.
func TestPanic(t *testing.T) {
	if os.Getenv(panics) != "" {
		keys, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &source{}
		_ = Live(t.Context(), keys, os.Stdout, Options{Interval: time.Millisecond, Read: func(ctx context.Context) (status.Counts, error) {
			c, err := s.read(ctx)
			if s.readings == 2 {
				panic("a fault in the program")
			}
			return c, err
		}})
		return
	}
	p := pty.New(t, 80, 24)
	before := p.State()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPanic$")
	cmd.Env = append(os.Environ(), panics+"=1")
	p.Own(cmd)
	if err := cmd.Run(); err == nil {
		t.Error("it did not panic")
	}
	p.Await(soon, "the panic's text", func(text string) bool { return strings.Contains(text, "panic") || strings.Contains(text, "goroutine") })
	p.AwaitState(soon, before)
}

// Every size has just as many lines as the terminal, none of them too wide, wherever the rows have been moved to.
func TestLines(t *testing.T) {
	s := &source{}
	first, _ := s.read(t.Context())
	second, _ := s.read(t.Context())
	l := &live{Options: Options{Sort: status.ByName}, table: NewTable(first, second, "")}
	for _, l.err = range []error{nil, errors.New(strings.Repeat("no agent ", 20))} {
		for height := 1; height < 120; height++ {
			for _, width := range []int{1, 2, 7, 8, 20, 40, 79, 80, 200} {
				l.offset = height*7 - 50
				lines := l.lines(width, height)
				if len(lines) != height {
					t.Fatalf("%d x %d: %d lines", width, height, len(lines))
				}
				for _, one := range lines {
					if len(one.text) > width {
						t.Fatalf("%d x %d: %q", width, height, one.text)
					}
				}
			}
		}
	}
}
