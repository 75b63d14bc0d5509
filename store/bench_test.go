package store

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"sluice/agent/source"
	"sluice/test/procfs"
)

// filled makes a file with n Services of one slice with 10 endpoints each.
func filled(b *testing.B, n int) Options {
	b.Helper()
	o := idle(shm(b))
	s, _ := Open(o)
	for i := range n {
		apply(s, service(fmt.Sprintf("service-%05d", i), 80), endpointSlice(fmt.Sprintf("service-%05d-x7k2p", i), fmt.Sprintf("service-%05d", i), 10))
		if s.Stats().WaitingBytes > maxWaiting {
			s.commit()
		}
	}
	s.InStep(source.Service, "1", time.Now())
	s.InStep(source.EndpointSlice, "1", time.Now())
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return o
}

func sizes(b *testing.B, run func(b *testing.B, n int, o Options)) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("%dx10", n), func(b *testing.B) { run(b, n, filled(b, n)) })
	}
}

func BenchmarkOpen(b *testing.B) {
	sizes(b, func(b *testing.B, n int, o Options) {
		b.ReportAllocs()
		for b.Loop() {
			s, cached := Open(o)
			if !cached.Complete {
				b.Fatal(cached.Why)
			}
			b.StopTimer()
			s.Close()
			b.StartTimer()
		}
		info, err := os.Stat(o.Path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/float64(n), "filebytes/Service")
	})
}

// BenchmarkStart is Open and a read of all Services, as at an offline start.
func BenchmarkStart(b *testing.B) {
	sizes(b, func(b *testing.B, n int, o Options) {
		b.ReportAllocs()
		var before, read, released int
		for b.Loop() {
			before = rss(b)
			s, _ := Open(o)
			for name := range s.Names() {
				if _, _, err := s.Service(name); err != nil {
					b.Fatal(err)
				}
			}
			read = rss(b)
			s.ReleaseMemory()
			released = rss(b)
			s.Close()
		}
		b.ReportMetric(float64(read-before), "KiB-file-RSS")
		b.ReportMetric(float64(released-before), "KiB-after-release")
	})
}

func BenchmarkService(b *testing.B) {
	sizes(b, func(b *testing.B, n int, o Options) {
		s, _ := Open(o)
		defer s.Close()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			svc, slices, err := s.Service(source.Name{Namespace: "default", Name: fmt.Sprintf("service-%05d", i*7919%n)})
			if err != nil || svc == nil || len(slices) != 1 {
				b.Fatal(svc, slices, err)
			}
		}
	})
}

func BenchmarkApply(b *testing.B) {
	for _, what := range []string{"same", "changed"} {
		b.Run(what, func(b *testing.B) {
			o := filled(b, 1000)
			o.CommitInterval, o.Quiet = 5*time.Second, 200*time.Millisecond
			s, _ := Open(o)
			defer s.Close()
			var d Dirty
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := i * 7919 % 1000
				b.StopTimer()
				slice := endpointSlice(fmt.Sprintf("service-%05d-x7k2p", n), fmt.Sprintf("service-%05d", n), 10)
				if what == "changed" {
					slice.Endpoints[i%10].Addresses[0] = "10.42.9." + strconv.Itoa(i/1000%256)
				}
				b.StartTimer()
				s.Apply(source.Change{Kind: source.EndpointSlice, Namespace: "default", Name: slice.Name, Object: slice}, &d)
				clear(d.Services)
			}
		})
	}
}

// BenchmarkFill takes in a first list of objects, with commits as they come, on a disk.
func BenchmarkFill(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%dx10", n), func(b *testing.B) {
			b.ReportAllocs()
			most := 0
			var commits, bytes int64
			for b.Loop() {
				s, _ := Open(Options{Path: cacheFile(b)})
				for i := range n {
					apply(s, service(fmt.Sprintf("service-%05d", i), 80), endpointSlice(fmt.Sprintf("service-%05d-x7k2p", i), fmt.Sprintf("service-%05d", i), 10))
					if i%100 == 0 {
						most = max(most, s.Stats().WaitingBytes)
					}
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				commits, bytes = s.Stats().Commits, s.Stats().BytesWritten
			}
			b.ReportMetric(float64(most>>10), "KiB-waiting-at-most")
			b.ReportMetric(float64(commits), "commits")
			b.ReportMetric(float64(bytes>>10), "KiB-written")
		})
	}
}

// BenchmarkCommit changes n slices of 1,000 and writes them, without waiting for the disk.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, _ := Open(filled(b, 1000))
			defer s.Close()
			b.ReportAllocs()
			before := s.Stats()
			for i := 0; b.Loop(); i++ {
				for j := range n {
					k := (i*n + j) * 7919 % 1000
					slice := endpointSlice(fmt.Sprintf("service-%05d-x7k2p", k), fmt.Sprintf("service-%05d", k), 10)
					slice.Endpoints[0].Addresses[0] = fmt.Sprintf("10.%d.%d.1", 100+i/256%100, i%256)
					apply(s, slice)
				}
				s.commit()
			}
			after := s.Stats()
			b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(after.Commits-before.Commits), "written/op")
		})
	}
}

// rss returns the resident pages of mapped files, in KiB.
func rss(b *testing.B) int {
	b.Helper()
	m, err := procfs.Memory(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	return int(m["RssFile"]+m["RssShmem"]) >> 10 // a file in /dev/shm counts as shared memory
}
