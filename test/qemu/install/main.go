// Command install is the whole story of an installation: a machine with Debian and systemd that QEMU emulates gets sluice by
// install.sh from a release folder, follows a real API server, is restarted without that, loses its power again and
// again, is upgraded and downgraded, and loses sluice without a trace. `make test-install` runs it, as root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	machine := flag.String("machine", "arm64", "the machine of package vm")
	release := flag.String("release", "dist", "the release folder")
	cuts := flag.Int("power-cuts", 10, "how many times the power is cut")
	clock := flag.Bool("clock", false, "an instruction takes 2 ns of the machine's time, as in test/qemu, so that its times do not depend on this machine; takes longer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *machine, *release, *cuts, *clock); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}
