package main

import (
	"time"

	"sluice/test/procfs"
)

// memory is a process's, in bytes.
type memory struct{ rss, anonymous, peak int64 }

func readMemory(pid int) (memory, error) {
	m, err := procfs.Memory(pid)
	return memory{rss: m["VmRSS"], anonymous: m["RssAnon"], peak: m["VmHWM"]}, err
}

// readCPU returns the time that a process used, with that of its children that have ended: kube-proxy runs nft.
func readCPU(pid int) (time.Duration, error) {
	own, children, err := procfs.CPU(pid)
	return own + children, err
}
