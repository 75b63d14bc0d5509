// Command sluice is a Kubernetes node's Service proxy for small machines.
package main

func main() {}
