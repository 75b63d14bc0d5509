package proxy

// State is the desired state of one family: the plans of all Services, and who
// has which frontend. It is not safe for concurrent use.
type State struct{}
