# frozen_string_literal: true

require_relative "child_process"

# malloc_info's text as an XML library understands it: an oracle for memscope's own parser. The library comes with Ruby
# as a gem, but is not in the bundle, so the text is parsed in a child.
class MallocInfoXML
  SCRIPT = <<~'RUBY'
    begin
      require "rexml/document"
    rescue LoadError
      abort "rexml is not installed"
    end
    require "json"

    # Numbers by "element type attribute".
    def numbers(parent)
      elements = parent.elements.select { |element| %w[total system aspace].include?(element.name) }
      elements.each_with_object({}) do |element, numbers|
        %w[count size].each do |attribute|
          value = element.attributes[attribute]
          numbers["#{element.name} #{element.attributes['type']} #{attribute}"] = Integer(value) if value
        end
      end
    end

    # Sizes of free blocks: the kind of the entry, from, to, bytes and blocks.
    def sizes(heap)
      heap.get_elements("sizes/*").map do |size|
        [size.name, *%w[from to total count].map { |attribute| Integer(size.attributes[attribute]) }]
      end
    end

    root = REXML::Document.new(File.read(ENV.fetch("MALLOC_INFO"))).root
    heaps = root.get_elements("heap").map do |heap|
      { index: Integer(heap.attributes["nr"]), **numbers(heap), sizes: sizes(heap) }
    end
    puts JSON.generate({ heaps: heaps, totals: numbers(root) })
  RUBY

  # Each heap's numbers, and those of all heaps.
  attr_reader :heaps, :totals

  # @raise [Minitest::Skip] if the library is missing
  def initialize(text)
    parsed = Tempfile.create("malloc_info") do |file|
      file.write(text)
      file.flush
      ChildProcess.run(SCRIPT, env: { "MALLOC_INFO" => file.path }, gems: true)
    end
    raise Minitest::Skip, parsed.err if parsed.err.start_with?("rexml is not installed")

    @heaps, @totals = parsed.json.values_at("heaps", "totals")
  end
end
