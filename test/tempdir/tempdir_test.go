package tempdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNew removes what dead processes have left, and nothing else.
func TestNew(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	leave := func(name string, age time.Duration) string {
		path := filepath.Join(os.TempDir(), name)
		if err := os.MkdirAll(filepath.Join(path, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	living, err := New("ours-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(living.Path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, young, other := leave("ours-1", time.Hour), leave("ours-2", 0), leave("others-1", time.Hour)
	d, err := New("ours-")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{living.Path: true, left: false, young: true, other: true, d.Path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", path, err == nil, want)
		}
	}
	for _, d := range []*Dir{living, d} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.Path); err == nil {
			t.Errorf("%s is still there", d.Path)
		}
	}
}
