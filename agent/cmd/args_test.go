package cmd

import (
	"strings"
	"testing"
)

func TestFlagsFirst(t *testing.T) {
	tests := []struct{ args, want string }{
		{"sluice", "sluice"},
		{"sluice --help", "sluice --help"},
		{"sluice nosuch a -b", "sluice nosuch a -b"},
		{"sluice get services web -o yaml", "sluice get -o yaml services web"},
		{"sluice get services -A web", "sluice get -A services web"},
		{"sluice get services --namespace=shop web", "sluice get --namespace=shop services web"},
		{"sluice get services web -o", "sluice get -o services web"},
		{"sluice get services -n a -- -o yaml", "sluice get -n a -- services -o yaml"},
		{"sluice get - -n a", "sluice get -n a -"},
		{"sluice get services -h", "sluice get --help"},
		{"sluice get services -n --help", "sluice get --help"},
		{"sluice agent --v -1", "sluice agent --v -1"},
		{"sluice agent --manifests=--dir --masquerade-all", "sluice agent --manifests=--dir --masquerade-all"},
	}
	for _, test := range tests {
		words, err := flagsFirst(commands(), strings.Fields(test.args))
		if got := strings.Join(words, " "); err != nil || got != test.want {
			t.Errorf("%s\n got %s, error %v\nwant %s", test.args, got, err, test.want)
		}
	}
}
