package kube

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice/proxy"
)

// An operator finds each limit of what is read from the server, and what the log and status say of it, where they are looked for.
func TestLimitsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Limits",
		"Services in the API server's list | " + grouped(maxServices) + " |",
		"EndpointSlices in it | " + grouped(maxSlices) + " |",
		"ServiceCIDRs in it | " + grouped(maxOthers) + " |",
		fmt.Sprintf("| %d MiB |", maxListBytes>>20),
		fmt.Sprintf("| %d MiB;", maxObject>>20),
		"| " + grouped(proxy.MaxPairs) + " pairs",
		errTooLarge.Error(),
		tooLargeObject,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/install.md lacks %q", want)
		}
	}
}

// grouped writes 50000 as 50,000.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
