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
	}
	for _, test := range tests {
		got := strings.Join(flagsFirst(commands(), strings.Fields(test.args)), " ")
		if got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.args, got, test.want)
		}
	}
}
