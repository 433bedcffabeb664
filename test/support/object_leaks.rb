# frozen_string_literal: true

# Leaks as they happen in Ruby programs, of some objects a request: those of test/fixtures/object_leaks.txt. Each has a
# name; how many requests to serve, if one is slow; one or more paths, with * for anything, of which any is right;
# and a script that defines `leak(number)`, with "# leaks" at the lines whose objects stay.
module ObjectLeaks
  # Each request allocates some sixty objects that die, and replaces one in a full cache of 1,000.
  PROGRAM = <<~RUBY
    Order = Struct.new(:number)
    CACHE = {}
    NEWEST = []
    def serve(number)
      rows = Array.new(15) { |row| { id: row, name: "row \#{row} of \#{number}" } }
      page = rows.map { |row| "\#{row[:name]}, \#{row[:id]}" }
      CACHE[number %% 1_000] ||= page.first
      NEWEST[number %% 1_000] = page.last
    end
    %<leak>s
    %<requests>d.times do |number|
      sleep 0.01 while number == 1_000 && Thread.list.any? { |one| one.name == "memscope warm-up" }
      serve(number)
      leak(number)
    end
  RUBY
  REQUESTS = 8_000
  private_constant :PROGRAM

  Leak = Struct.new(:name, :script, :paths, :requests) do
    # @return [String] a program that leaks beside healthy traffic
    def program = format(PROGRAM, leak: script, requests: requests)

    # @return [Array<Integer>] the lines that leak
    def lines = program.lines.each_with_index.filter_map { |line, index| index + 1 if line.include?("# leaks") }

    # @param path [String] the retainer of the objects, as `memscope leaks` prints it
    def held_by?(path) = paths.any? { |right| File.fnmatch?(right, path) }
  end

  # Healthy traffic alone.
  NONE = Leak.new("none", "def leak(number) = Order.new(number)", [], REQUESTS).freeze

  ALL = File.read("#{__dir__}/../fixtures/object_leaks.txt").split(/^== /).drop(1).map do |text|
    head, script = text.split("\n\n", 2)
    title, *paths = head.split("\nheld by ")
    name, requests = title.split(/, | requests/)
    Leak.new(name, script, paths, requests ? Integer(requests) : REQUESTS)
  end.freeze
end
