// Command qemu runs what was built for ARM on boards that QEMU emulates, under Debian's kernels: the release's
// program under test/bench, and the cases of test/dataplane. `make test-qemu` runs it.
//
// A guest is a machine of package vm and its MiB of memory: arm64:128. If kernel modules follow it lacks
// these, and it is tried that the program does what is right without them: arm64:512:nft_numgen,xt_recent. If faults follows,
// its clock is set by years and its table of connections is full.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/test/qemu/vm"
	"sluice/test/tempdir"
)

// allGuests are those that run without arguments.
var allGuests = []string{"arm64:512", "arm64:128", "armv7:512", "armv6:512",
	"arm64:512:faults", "arm64:512:nf_tables", "arm64:512:nft_numgen", "arm64:512:nft_fib_ipv6", "arm64:512:nft_numgen,xt_statistic"}

// casesMiB is the least memory for the cases, whose program has 40 MB.
const casesMiB = 256

// maxAnonymous is the most memory of its own, in MB, that the agent may have with 100 Services of 3 endpoints.
const maxAnonymous = 8

// clock has an instruction take 2 ns of the machine's time, about as on these boards, and skips the time when it has nothing
// to do. So times do not depend on this machine and on what else it does. A Raspberry Pi Zero even needs this: its timer is set to
// a moment of a few µs later, and when that has passed before it is set, the machine hangs.
var clock = []string{"-icount", "shift=1,sleep=off"}

// limit ends a guest that hangs. On a busy machine all cases can take more than an hour.
const limit = 4 * time.Hour

func main() {
	cases := flag.String("cases", ".", "run the tests of test/dataplane that match this pattern; empty: none")
	flag.Parse()
	guests := flag.Args()
	if len(guests) == 0 {
		guests = allGuests
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, guests, *cases); err != nil {
		fmt.Fprintln(os.Stderr, "qemu:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, guests []string, cases string) error {
	var errs []error
	var summary strings.Builder
	for _, name := range guests {
		g := guest{name: name, cases: cases}
		err := g.run(ctx)
		fmt.Fprintln(&summary, g.summary(err))
		errs = append(errs, err)
	}
	fmt.Printf("\n%s", summary.String())
	return errors.Join(errs...)
}

// guest is one boot of one machine.
type guest struct {
	name, cases string
	lacks       []string // kernel modules
	faults      bool     // the machine itself is made to be at fault

	kernel  *vm.Kernel
	took    time.Duration
	figures []string // lines of the benchmark
}

func (g *guest) run(ctx context.Context) error {
	name, mib, _ := strings.Cut(g.name, ":")
	mib, lacks, _ := strings.Cut(mib, ":")
	switch lacks {
	case "":
	case "faults":
		g.faults, g.cases = true, ""
	default:
		g.lacks, g.cases = strings.Split(lacks, ","), ""
	}
	machine, err := vm.Find(name)
	if err != nil {
		return err
	}
	boot := vm.Boot{Args: clock}
	if boot.MiB, err = strconv.Atoi(mib); err != nil {
		return fmt.Errorf("guest %q: want MACHINE:MIB, or MACHINE:MIB:MODULE,...: %w", g.name, err)
	}
	if machine.MiB != 0 && machine.MiB != boot.MiB {
		return fmt.Errorf("guest %q: this machine has %d MiB", g.name, machine.MiB)
	}
	if boot.MiB < casesMiB {
		g.cases = ""
	}
	if g.kernel, err = machine.Fetch(ctx); err != nil {
		return err
	}
	dir, err := tempdir.New("sluice-qemu-")
	if err != nil {
		return err
	}
	defer dir.Close()
	boot.Kernel, boot.Initramfs = g.kernel, filepath.Join(dir.Path, "initramfs")
	if err := g.prepare(ctx, dir.Path, &boot); err != nil {
		return err
	}
	return g.boot(ctx, boot)
}

// prepare makes what the machine boots from, in a folder.
func (g *guest) prepare(ctx context.Context, dir string, boot *vm.Boot) error {
	machine := g.kernel.Machine
	files := filepath.Join(dir, "test")
	program, err := os.ReadFile("dist/sluice-" + machine.Release)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(files, 0o755), os.WriteFile(filepath.Join(files, "sluice"), program, 0o755)); err != nil {
		return err
	}
	commands, err := g.programs(ctx, files)
	if err != nil {
		return err
	}
	r, err := vm.NewInitramfs(ctx, g.kernel, boot.Initramfs, g.lacks...)
	if err != nil {
		return err
	}
	r.Commands(commands...)
	if boot.MiB < casesMiB { // all that is in the initramfs stays in memory
		image := filepath.Join(dir, "disk")
		boot.Args = append(slices.Clone(boot.Args), vm.DriveArgs(image, "unsafe")...)
		err = errors.Join(vm.MakeDisk(ctx, image, files, "128M"), r.AddProgram("bin/ip"))
	} else {
		err = errors.Join(r.Add("test", files), r.AddTools())
	}
	return errors.Join(err, r.Close())
}

// programs puts what the machine is to run into a folder, and returns the commands.
func (g *guest) programs(ctx context.Context, files string) (commands []string, err error) {
	machine := g.kernel.Machine
	tests := ""
	switch {
	case g.faults:
		tests = "-test.run TestClockJumps|TestFullConntrack -own-machine"
	case g.lacks != nil:
		tests = "-test.run TestModulesThatLack -lacks " + strings.Join(g.lacks, ",")
	}
	if tests != "" {
		return []string{"./agent.test -test.v -binary ./sluice " + tests}, machine.Build(ctx, filepath.Join(files, "agent.test"), "test", "-c", "./test/agent")
	}
	commands = []string{
		fmt.Sprintf("./bench -binary ./sluice -changes 5 -sizes 100x3 -max-anonymous %d", maxAnonymous),
		"./bench -binary ./sluice -changes 5 -sizes 1000x10",
	}
	err = machine.Build(ctx, filepath.Join(files, "bench"), "build", "./test/bench")
	if g.cases != "" {
		commands = append(commands, "./dataplane.test -test.v -test.timeout 50m -test.run "+g.cases)
		err = errors.Join(err, machine.Build(ctx, filepath.Join(files, "dataplane.test"), "test", "-c", "./test/dataplane"),
			os.CopyFS(filepath.Join(files, "testdata"), os.DirFS("test/dataplane/testdata")))
	}
	return commands, err
}

// figures are the lines of test/bench.
var figures = regexp.MustCompile(`^\d+ x \d+ `)

// dull are the lines of a test that say no more than that a single case begins, goes on or passes.
var dull = regexp.MustCompile(`^ +--- PASS|^=== (PAUSE|CONT|NAME)|^=== RUN +[^/]+(/[^/]+){4}`)

// boot runs the machine to its end and looks for its success.
func (g *guest) boot(ctx context.Context, b vm.Boot) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	succeeded, err := b.Run(ctx, func(line string) {
		if !dull.MatchString(line) {
			fmt.Printf("%-10s %6.1f s  %s\n", g.name, time.Since(begun).Seconds(), line)
		}
		if figures.MatchString(line) {
			g.figures = append(g.figures, line)
		}
	})
	g.took = time.Since(begun)
	if err == nil && !succeeded {
		err = errors.New("it did not succeed (see above)")
	}
	return err
}

func (g *guest) summary(err error) string {
	if err != nil {
		return g.name + ": FAILED: " + err.Error()
	}
	cases := "no cases"
	switch {
	case g.cases != "":
		cases = "cases passed"
	case g.faults:
		cases = "right with the machine's faults"
	case g.lacks != nil:
		cases = "right without " + strings.Join(g.lacks, " and ")
	}
	return fmt.Sprintf("%s: Linux %s, %s, %v\n  %s", g.name, g.kernel.Version, cases, g.took.Round(time.Second), strings.Join(g.figures, "\n  "))
}
