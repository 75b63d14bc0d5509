// Package e2e tests the real agent beside a real API server, and counts only what
// packets meet.
package e2e
