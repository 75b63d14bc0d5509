package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReadFlows(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadFlows(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without connection tracking: %v", err)
	}
	dir := filepath.Join(root, "net/netfilter")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"nf_conntrack_count": "7\n", "nf_conntrack_max": "100\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadFlows(root); err != nil || got != (Flows{7, 100}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFlows(t *testing.T) {
	for _, tt := range []struct {
		Flows
		filling, full bool
		text, room    string
	}{
		{Flows{7, 100}, false, false, "7 of 100 connections are in use", "nf_conntrack_max=500"},
		{Flows{79, 100}, false, false, "79 of 100 connections are in use", "nf_conntrack_max=500"},
		{Flows{80, 100}, true, false, "80 of 100 connections are in use", "nf_conntrack_max=500"},
		{Flows{95, 100}, true, true, "95 of 100 connections are in use: new ones are dropped", "nf_conntrack_max=500"},
		{Flows{1 << 29, 1 << 29}, true, true, "536870912 of 536870912 connections are in use: new ones are dropped", "nf_conntrack_max=1073741824"},
		{Flows{3, 1}, true, true, "3 of 1 connections are in use: new ones are dropped", "nf_conntrack_max=500"},
		{Flows{7, 0}, false, false, "7 tracked", "nf_conntrack_max=500"},
	} {
		if tt.Filling() != tt.filling || tt.Full() != tt.full || tt.String() != tt.text || tt.Room(500) != "sysctl -w net.netfilter."+tt.room {
			t.Errorf("%+v: filling %v, full %v, %q, %q", tt.Flows, tt.Filling(), tt.Full(), tt.String(), tt.Room(500))
		}
	}
}
