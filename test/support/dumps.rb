# frozen_string_literal: true

require "json"
require "set"

# Heap dumps, read by others' parsers into one form that can be compared: objects by a number, each with its label, its
# bytes and the numbers that it refers to, and the numbers that each category of roots refers to. The number of an
# object is its distance from BasicObject in places of 32 bytes.
module Dumps
  Entry = Struct.new(:label, :bytes, :references, :names)
  Graph = Struct.new(:objects, :roots)

  module_function

  NO_OBJECTS = %w[SHAPE ZOMBIE].freeze

  # A dump of ObjectSpace.dump_all. Only classes have labels.
  def of_lines(path)
    roots, rest = parsed(path).partition { |line| line["type"] == "ROOT" }
    objects = rest.reject { |line| NO_OBJECTS.include?(line["type"]) }
    number = numbering(objects)
    known = objects.to_set { |line| number[line["address"]] }
    referred = ->(addresses) { addresses.to_a.compact.to_set(&number) & known }
    Graph.new(objects.to_h { |line| [number[line["address"]], entry(line, referred)] },
              roots.group_by { |line| line["root"] }
                   .transform_values { |all| referred[all.flat_map { |line| line["references"].to_a }] })
  end

  def parsed(path)
    File.foreach(path, encoding: "BINARY").map { |line| JSON.parse(line.force_encoding("UTF-8").scrub) }
  end

  def numbering(objects)
    base = objects.find { |line| line["name"] == "BasicObject" && !line["singleton"] }.fetch("address").hex
    ->(address) { (address.hex - base) >> 5 }
  end

  def entry(line, referred)
    label = line["singleton"] ? "Singleton<#{line['real_class_name']}>" : "Class<#{line['name']}>" if line["name"]
    Entry.new(label, line["memsize"] || line["slot_size"], referred[[*line["references"], line["class"]]], {})
  end

  # One of Perfetto's heap graphs.
  def of_trace(path)
    parts = HeapGraphProto::Trace.decode(File.binread(path)).packet.filter_map(&:heap_graph)
    all = ->(field) { parts.flat_map { |part| part.public_send(field).to_a } }
    types = all[:types].to_h { |type| [type.id, type.class_name] }
    fields = all[:field_names].to_h { |name| [name.iid, name.str] }
    Graph.new(all[:objects].to_h { |object| [number_of(object.id), trace_entry(object, types, fields)] },
              all[:roots].to_h { |root| [root.root_type, root.object_ids.to_set { |id| number_of(id) }] })
  end

  def trace_entry(object, types, fields)
    to = object.reference_object_id.map { |id| number_of(id) }
    internal = object.runtime_internal_object_id.map { |id| number_of(id) }
    names = object.reference_field_id.map { |id| fields.fetch(id) }.zip(to).to_h
    Entry.new(types.fetch(object.type_id), object.self_size, Set[*to, *internal], names)
  end

  # Perfetto's ids are odd numbers, folded so that negative ones are short too.
  def number_of(id)
    odd = id.even? ? id / 2 : -((id + 1) / 2)
    (odd - 1) / 2
  end

  # A .heapsnapshot, with the bytes of all objects, the names of edges by their text, and roots by the names of their
  # nodes.
  def of_snapshot(path)
    snapshot = JSON.parse(File.read(path))
    nodes, edges, strings = snapshot.values_at("nodes", "edges", "strings")
    nodes = nodes.each_slice(snapshot.dig("snapshot", "meta", "node_fields").size).to_a
    rest = edges.each_slice(3)
    referred = nodes.map { |node| Array.new(node[4]) { rest.next } }
    numbers = nodes.map { |node| (((node[2] ^ 0x8000_0000) - 0x8000_0000) - 1) / 2 if node[2].odd? }
    synthetic, objects = nodes.each_index.partition { |index| nodes[index][0] == 9 }
    Graph.new(objects.to_h { |index| [numbers[index], snapshot_entry(index, nodes, referred, numbers, strings)] },
              synthetic.drop(1).to_h { |index| [strings[nodes[index][1]], places(referred[index], numbers).to_set] })
  end

  def snapshot_entry(index, nodes, referred, numbers, strings)
    to = places(referred[index], numbers)
    names = referred[index].zip(to).to_h { |(type, name, _to), place| [type == 1 ? name : strings[name], place] }
    Entry.new(strings[nodes[index][1]], nodes[index][3], to.to_set, names)
  end

  def places(edges, numbers) = edges.map { |_type, _name, to| numbers[to / 7] }
end
