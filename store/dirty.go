package store

// Merge adds what is dirty in o.
func (d *Dirty) Merge(o *Dirty) {
	d.Node = d.Node || o.Node
	for name := range o.Services {
		d.service(name.Namespace, name.Name)
	}
}
