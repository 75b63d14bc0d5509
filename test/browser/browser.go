// Package browser looks at pages with Chromium, where it is installed.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"sluice/test/lab"
)

// Browser is a Chromium without a window, that is asked over a pipe (its DevTools protocol).
type Browser struct {
	cmd     *exec.Cmd
	to      *os.File
	from    *bufio.Reader
	session string
	id      int
}

// programs are Chromium's names.
var programs = []string{"chromium", "chromium-browser", "chromium-headless-shell", "google-chrome"}

const limit = 60 * time.Second

// Start starts one in a network namespace until the test ends. It skips the test where there is none, or it does not start here.
func Start(t *testing.T, ns *lab.Namespace) *Browser {
	t.Helper()
	program := ""
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skipf("no browser: none of the programs %q is installed", programs)
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirsToo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{to: to, from: bufio.NewReader(from)}
	b.cmd = exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	b.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	b.cmd.ExtraFiles = []*os.File{theirs, theirsToo} // descriptors 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ns.Start(b.cmd); err != nil {
		t.Skipf("no browser: %v", err)
	}
	theirs.Close()
	theirsToo.Close()
	late := time.AfterFunc(limit, b.kill)
	t.Cleanup(func() {
		late.Stop()
		b.kill()
		_ = b.cmd.Wait()
		// Its children, too, before their files are removed.
		for deadline := time.Now().Add(2 * time.Second); syscall.Kill(-b.cmd.Process.Pid, 0) == nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		to.Close()
		from.Close()
	})
	var target struct{ TargetID string }
	if err := b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		t.Skipf("no browser: %s does not answer: %v", program, err)
	}
	var attached struct{ SessionID string }
	if err := b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		t.Fatal(err)
	}
	b.session = attached.SessionID
	return b
}

// kill ends it with all processes that it started.
func (b *Browser) kill() { _ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) }

// message is one of the protocol, without the fields that are not used.
type message struct {
	ID        int                       `json:"id,omitempty"`
	Method    string                    `json:"method,omitempty"`
	Params    any                       `json:"params,omitempty"`
	SessionID string                    `json:"sessionId,omitempty"`
	Result    json.RawMessage           `json:"result,omitempty"`
	Error     *struct{ Message string } `json:"error,omitempty"`
}

// Call calls a method of the protocol; result may be nil.
func (b *Browser) Call(method string, params, result any) error {
	b.id++
	text, err := json.Marshal(message{ID: b.id, Method: method, Params: params, SessionID: b.session})
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		m, err := b.next()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case m.ID != b.id:
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
}

func (b *Browser) next() (m message, err error) {
	text, err := b.from.ReadBytes(0)
	if errors.Is(err, io.EOF) {
		err = errors.New("it has ended")
	}
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text[:len(text)-1], &m)
}

// Look says how a page is looked at. Scripts are off.
type Look struct {
	Width, Height int
	Mobile        bool
	// Dark is whether the visitor prefers that.
	Dark bool
}

// Seen is what a page looks like.
type Seen struct {
	// Width is that of all that there is to see, in CSS pixels.
	Width, Height float64
	// PNG is an image of what fits, or of all of it.
	PNG []byte
}

// See loads a page. whole asks for an image of all of it.
func (b *Browser) See(url string, l Look, whole bool) (s Seen, err error) {
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	type args = map[string]any
	for _, c := range []struct {
		method string
		params args
	}{
		{"Emulation.setDeviceMetricsOverride", args{"width": l.Width, "height": l.Height, "deviceScaleFactor": 1, "mobile": l.Mobile}},
		{"Emulation.setEmulatedMedia", args{"features": []args{{"name": "prefers-color-scheme", "value": scheme}}}},
		{"Emulation.setScriptExecutionDisabled", args{"value": true}},
		{"Page.enable", args{}},
	} {
		if err := b.Call(c.method, c.params, nil); err != nil {
			return s, err
		}
	}
	var navigated struct{ ErrorText string }
	if err := b.Call("Page.navigate", args{"url": url}, &navigated); err != nil {
		return s, err
	}
	if navigated.ErrorText != "" {
		return s, fmt.Errorf("load %s: %s", url, navigated.ErrorText)
	}
	for m := (message{}); m.Method != "Page.loadEventFired"; {
		if m, err = b.next(); err != nil {
			return s, err
		}
	}
	var metrics struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	if err := b.Call("Page.getLayoutMetrics", args{}, &metrics); err != nil {
		return s, err
	}
	s.Width, s.Height = metrics.CSSContentSize.Width, metrics.CSSContentSize.Height
	var shot struct{ Data string }
	if err := b.Call("Page.captureScreenshot", args{"format": "png", "captureBeyondViewport": whole}, &shot); err != nil {
		return s, err
	}
	s.PNG, err = base64.StdEncoding.DecodeString(shot.Data)
	return s, err
}
