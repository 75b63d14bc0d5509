// Package rig is an agent under test: the real program on the node of a lab, what
// it says of itself, and what packets meet there.
package rig
