package agent

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"sluice/test/procfs"
)

// TestReleaseProgram holds that the program runs on after its pages were given back, and that there is something to win.
func TestReleaseProgram(t *testing.T) {
	before, err := procfs.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	after, err := procfs.Memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after["RssFile"] > before["RssFile"]*3/4 {
		t.Errorf("pages of files: %d bytes before, %d after", before["RssFile"], after["RssFile"])
	}
}

func TestIsFixed(t *testing.T) {
	for kind, want := range map[elf.Type]bool{elf.ET_EXEC: true, elf.ET_DYN: false} {
		path := filepath.Join(t.TempDir(), "program")
		head := binary.NativeEndian.AppendUint16([]byte(elf.ELFMAG+"0123456789ab"), uint16(kind))
		if err := os.WriteFile(path, head, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := isFixed(path); got != want || err != nil {
			t.Errorf("%v: %v, error %v, want %v", kind, got, err, want)
		}
	}
}
