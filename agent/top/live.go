package top

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/status"
)

// Options of the table.
type Options struct {
	// Read asks the agent.
	Read func(context.Context) (status.Counts, error)
	// Interval is the time between two readings.
	Interval time.Duration
	// Sort is what rows are sorted by at first.
	Sort status.Key
	// Namespace keeps Services of others out; empty is all.
	Namespace string
}

// live is the table on a terminal. All of it is touched by one goroutine.
type live struct {
	Options
	terminal *terminal
	screen   screen
	table    *Table
	counts   status.Counts // of the table
	err      error         // why the table is not what it should be
	offset   int           // of the first row that is shown
	ended    bool
}

// reading is what the agent answered.
type reading struct {
	counts status.Counts
	err    error
}

// Live shows the table on the terminal out until ctx ends, q is typed or another signal ends it, and gives the terminal back in any
// case. keys is the same terminal, to read from; nil if nothing can be typed. It is closed. The first reading has to succeed.
func Live(ctx context.Context, keys, out *os.File, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	if keys != nil {
		defer keys.Close() // after the terminal was given back; it ends listen, too
	}
	l := &live{Options: o, terminal: &terminal{keys: keys, out: out}, screen: screen{to: out}}
	first, err := o.Read(ctx)
	if err != nil {
		return err
	}
	l.take(reading{counts: first})
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	defer signal.Stop(signals)
	defer l.terminal.giveBack()
	if err := l.terminal.take(); err != nil {
		return err
	}
	return l.run(ctx, signals)
}

// run turns until the end.
func (l *live) run(ctx context.Context, signals <-chan os.Signal) error {
	typed := make(chan []byte)
	if l.terminal.keys != nil {
		go l.listen(ctx, typed)
	}
	ticks := time.NewTicker(l.Interval)
	defer ticks.Stop()
	answers := make(chan reading, 1)
	asking := false
	for !l.ended {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			if !asking {
				asking = true
				go l.ask(ctx, answers)
			}
		case r := <-answers:
			asking = false
			l.take(r)
		case keys, ok := <-typed:
			if !ok {
				return nil // the terminal is gone
			}
			l.press(string(keys))
		case s := <-signals:
			if err := l.signal(ctx, s, signals); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *live) ask(ctx context.Context, answers chan<- reading) {
	defer l.terminal.guard()
	counts, err := l.Read(ctx)
	answers <- reading{counts, err}
}

// listen hands over what is typed, and ends when the file is closed.
func (l *live) listen(ctx context.Context, typed chan<- []byte) {
	defer l.terminal.guard()
	defer close(typed)
	for {
		b := make([]byte, 64)
		n, err := l.terminal.keys.Read(b)
		if err != nil || n == 0 {
			return
		}
		select {
		case typed <- b[:n]:
		case <-ctx.Done():
			return
		}
	}
}

// take takes in a reading. One of the same look at the kernel changes no rates.
func (l *live) take(r reading) {
	l.err = r.err
	if r.err != nil || l.table != nil && r.counts.At.Equal(l.counts.At) && !r.counts.At.IsZero() {
		return
	}
	l.table = NewTable(l.counts, r.counts, l.Namespace)
	l.counts = r.counts
}

// signal handles the signals that end nothing.
func (l *live) signal(ctx context.Context, s os.Signal, signals <-chan os.Signal) error {
	if s == syscall.SIGTSTP {
		l.terminal.giveBack()
		if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		for s != syscall.SIGCONT { // Kill returns before all threads have stopped
			select {
			case s = <-signals:
			case <-ctx.Done():
				return nil
			}
		}
	}
	if s == syscall.SIGCONT {
		l.terminal.giveBack() // after SIGSTOP a shell has used the terminal
	}
	l.screen.forget()
	return l.terminal.take()
}

// press handles keys.
func (l *live) press(keys string) {
	_, height := l.terminal.size()
	page := max(height-4, 1)
	for keys != "" {
		key := keys[:1]
		for sequence := range moves {
			if strings.HasPrefix(keys, sequence) && len(sequence) > len(key) {
				key = sequence
			}
		}
		keys = keys[len(key):]
		if move, ok := moves[key]; ok {
			l.offset = move(l.offset, page, len(l.table.rates.Services))
			continue
		}
		if by, ok := sortKeys[key]; ok {
			l.Sort, l.offset = by, 0
		}
		switch key {
		case "q":
			l.ended = true
		case "\f": // Control-L, after something else wrote to the terminal
			l.screen.forget()
		}
	}
}

// sortKeys are the keys that sort.
var sortKeys = map[string]status.Key{"c": status.ByRate, "t": status.ByTotal, "n": status.ByName, "e": status.ByEndpoints, "b": status.ByBytes}

// moves are the keys that move the rows, as terminals send them: how the offset changes with this many lines on a page and rows. draw keeps it in bounds.
var moves = map[string]func(offset, page, rows int) int{
	"k": up, "\x1b[A": up, "\x1bOA": up,
	"j": down, "\x1b[B": down, "\x1bOB": down,
	"\x1b[5~": func(offset, page, _ int) int { return offset - page },
	"\x1b[6~": func(offset, page, _ int) int { return offset + page },
	" ":       func(offset, page, _ int) int { return offset + page },
	"g":       home, "\x1b[H": home, "\x1bOH": home, "\x1b[1~": home,
	"G": end, "\x1b[F": end, "\x1bOF": end, "\x1b[4~": end,
	"\x1b[": func(offset, _, _ int) int { return offset }, // the begin of a key that means nothing here
}

func up(offset, _, _ int) int   { return offset - 1 }
func down(offset, _, _ int) int { return offset + 1 }
func home(_, _, _ int) int      { return 0 }
func end(_, _, rows int) int    { return rows }

// draw brings the screen up to date.
func (l *live) draw() error {
	width, height := l.terminal.size()
	return l.screen.draw(l.lines(width, height))
}

// lines are those of the whole screen.
func (l *live) lines(width, height int) []line {
	l.table.rates.Sort(l.Sort)
	above := []line{{text: l.table.title(), style: bold}}
	if l.err != nil {
		above = append(above, line{text: printable(l.err.Error())})
	} else if l.table.counts.NotCounted != "" {
		above = append(above, line{text: printable(l.table.counts.NotCounted)})
	}
	room := max(height-len(above)-2, 0) // without the heads of columns and the last line
	l.offset = max(min(l.offset, len(l.table.rates.Services)-room), 0)
	shown := l.table.rates.Services[l.offset:min(l.offset+room, len(l.table.rates.Services))]
	body := lines(shown, width)
	above = append(above, line{text: body[0], style: reversed})
	for _, text := range body[1:] {
		above = append(above, line{text: text})
	}
	for len(above) < height-1 {
		above = append(above, line{})
	}
	above = append(above, line{text: l.help(len(shown)), style: reversed})
	above = above[:height]
	for i := range above {
		above[i].text = above[i].text[:min(len(above[i].text), width)]
		if above[i].style == reversed {
			above[i].text = pad(above[i].text, width)
		}
	}
	return above
}

// help is the last line.
func (l *live) help(shown int) string {
	var b strings.Builder
	for _, k := range [...]struct{ key, of string }{{"c", "c rate"}, {"t", "t total"}, {"e", "e endpoints"}, {"b", "b bytes"}, {"n", "n name"}} {
		if sortKeys[k.key] == l.Sort {
			fmt.Fprintf(&b, "[%s] ", k.of)
		} else {
			fmt.Fprintf(&b, " %s  ", k.of)
		}
	}
	b.WriteString(" q quit")
	if len(l.table.rates.Services) > shown {
		fmt.Fprintf(&b, "   %d-%d", l.offset+1, l.offset+shown)
	}
	return b.String()
}
