package maassim

func (c *call) listDisks() *reply {
	out := []any{}
	for _, d := range c.rec.disks {
		out = append(out, c.s.diskJSON(c.rec, d))
	}
	return jsonReply(out)
}

func (c *call) disk() (*disk, *reply) {
	d := c.rec.diskByID(c.num("n"))
	if d == nil {
		return nil, notFound("BlockDevice")
	}
	return d, nil
}

func (c *call) readDisk() *reply {
	d, bad := c.disk()
	if bad != nil {
		return bad
	}
	return jsonReply(c.s.diskJSON(c.rec, d))
}

func (c *call) setBootDisk() *reply {
	d, bad := c.disk()
	if bad != nil {
		return bad
	}
	if c.rec.status != Ready {
		return stateConflict("Cannot set as boot disk because the node is not Ready.")
	}
	if d.virtual {
		return text(400, "Cannot set a virtual block device as the boot disk.")
	}
	c.rec.bootDisk = d.id
	c.s.count(c.rec, countBootDisk)
	return text(200, "OK")
}

func (c *call) addDiskTag() *reply    { return c.diskTag(true) }
func (c *call) removeDiskTag() *reply { return c.diskTag(false) }

func (c *call) diskTag(add bool) *reply {
	d, bad := c.disk()
	if bad != nil {
		return bad
	}
	d.tags = retag(d.tags, c.form.Get("tag"), add)
	return jsonReply(c.s.diskJSON(c.rec, d))
}

// setStorageLayout takes the id of a block device as root_device; the layout
// goes to the boot disk of that moment when none is named.
func (c *call) setStorageLayout() *reply {
	m := c.rec
	if m.status != Ready {
		return stateConflict("Cannot change the storage layout on a machine that is not Ready.")
	}
	layout := c.form.Get("storage_layout")
	if !contains([]string{"flat", "lvm", "bcache", "blank", "vmfs6", "vmfs7", "custom"}, layout) {
		return field("storage_layout", "'%s' is not a valid storage layout.", layout)
	}
	root := m.effectiveBootDisk()
	if v := c.form.Get("root_device"); v != "" {
		id, _, bad := c.intParam("root_device")
		if bad != nil || m.diskByID(id) == nil {
			return field("root_device", "'%s' is not a valid root_device.", v)
		}
		root = m.diskByID(id)
	}
	if root == nil {
		return text(400, "Machine is missing a boot disk; no storage layout can be applied.")
	}
	c.s.applyLayout(m, layout, root)
	c.s.count(m, countLayout)
	return jsonReply(c.s.machineJSON(m))
}

func (c *call) restoreStorage() *reply {
	if bad := c.onlyReady("storage"); bad != nil {
		return bad
	}
	if c.rec.hw != nil {
		c.s.inventoryDisks(c.rec, c.rec.hw.Spec())
	}
	return jsonReply(c.s.machineJSON(c.rec))
}

func (c *call) restoreNetworking() *reply {
	if bad := c.onlyReady("networking"); bad != nil {
		return bad
	}
	if c.rec.hw != nil {
		c.s.inventoryNICs(c.rec, c.rec.hw.Spec())
	}
	return jsonReply(c.s.machineJSON(c.rec))
}

func (c *call) restoreDefault() *reply {
	if bad := c.restoreNetworking(); bad.code != 200 {
		return bad
	}
	return c.restoreStorage()
}

func (c *call) onlyReady(what string) *reply {
	if !in(c.rec.status, Ready, Allocated) {
		return stateConflict("Machine must be in a ready or allocated state to restore %s configuration.", what)
	}
	return nil
}
