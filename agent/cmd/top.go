package cmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
	"sluice/agent/top"
)

// leastInterval is how often the agent looks at the kernel's counters at most.
const leastInterval = time.Second

// Top shows the Services by new connections.
func Top() *cli.Command {
	flags := newConfigFlags("socket", "config")
	var keys []string
	for _, k := range status.Keys {
		keys = append(keys, string(k))
	}
	sort := &flag{name: "sort", placeholder: "KEY", def: string(status.ByRate), usage: "sort by rate, total, name, endpoints or bytes", values: keys}
	interval := &flag{name: "interval", placeholder: "TIME", def: "1s", usage: "time between two readings, 1s at least"}
	count := &flag{name: "count", placeholder: "N", usage: "print N tables instead of a live one, and end"}
	namespace := &flag{name: "namespace", alias: "n", placeholder: "NAME", usage: "only in this namespace; without, in all"}
	return &cli.Command{
		Name:      "top",
		Usage:     "show the services by new connections, live",
		UsageText: "sluice top [--sort KEY] [--interval TIME] [--count N] [-n NAMESPACE]",
		Description: "Asks the running agent on its socket. NEW/S is new connections a second (for UDP\n" +
			"flows), TOTAL all that the kernel counted, ENDPOINTS how many are ready, of how\n" +
			"many there are. 1ST-BYTES adds up the first packet of each connection alone: the\n" +
			"others pass no rule that counts. In the mode iptables nothing is counted.\n\n" +
			"Keys: c rate, t total, e endpoints (fewest ready first), b bytes, n name; arrows,\n" +
			"page up and down, home, end; q ends. Where the output is no terminal one table\n" +
			"is printed, after one interval.\n\n" +
			"Exit codes: 0 success, 1 no answer, 2 wrong arguments, 3 no agent is running.\n\n" +
			"Examples:\n" +
			"   sluice top\n" +
			"   sluice top -n shop --sort total\n" +
			"   sluice top --count 3 --interval 10s | tee load.txt",
		Flags: flags.and(sort, interval, count, namespace),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unexpectedArgument(c.Args().First())
			}
			o := top.Options{Sort: status.Key(sort.last()), Namespace: namespace.last()}
			if err := checkValue(sort); err != nil {
				return err
			}
			var err error
			if o.Interval, err = time.ParseDuration(interval.last()); err != nil || o.Interval < leastInterval {
				return usageError(fmt.Errorf("--interval %q is not a time of %v or more, like 2s", interval.last(), leastInterval))
			}
			tables := 0
			if count.IsSet() {
				if tables, err = strconv.Atoi(count.last()); err != nil || tables < 1 {
					return usageError(fmt.Errorf("--count %q is not a number of 1 or more", count.last()))
				}
			}
			client, err := newClient(flags)
			if err != nil {
				return err
			}
			o.Read = func(ctx context.Context) (status.Counts, error) {
				counts, err := client.Counts(ctx)
				return counts, askError(err)
			}
			out, ok := c.App.Writer.(*os.File)
			if !ok || tables > 0 || !top.IsTerminal(out) {
				return top.Plain(c.Context, c.App.Writer, cmp.Or(tables, 1), o)
			}
			// Not standard input, which can be something else, and which a read could not be ended of.
			tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
			if err != nil {
				tty = nil // nothing can be typed
			}
			return top.Live(c.Context, tty, out, o)
		},
	}
}
