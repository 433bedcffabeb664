# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/required_programs"

# Which file the memory belongs to, and which gem the file belongs to.
class RequireTreeTest < MemscopeTest
  include RequiredPrograms

  parallelize_me!

  def test_the_tree
    found = reading("require 'heavy'; Light::Late; require 'socket'")
    program, *files = found.nodes
    heavy, light, late, socket = %w[/heavy.rb /light.rb /late.rb /socket.so].map do |ending|
      files.find { |node| node.path.end_with?(ending) }
    end

    assert_equal [program.id, heavy.id, program.id], [heavy.parent, light.parent, late.parent]
    assert_equal [false, false, true, false], [heavy, light, late, socket].map(&:lazy?)
    assert_equal heavy.bytes + light.bytes, found.inclusive_bytes(heavy)
    assert_operator socket.mapped_bytes, :>, 4096
    assert_equal "ruby", socket.gem
  end

  def test_what_a_file_requires_again_costs_it_nothing
    found = reading("20_000.times { require 'heavy' }; require 'light'")

    assert_operator found.nodes.first.objects, :<, 10_000
  end

  def test_mapped_bytes_are_what_the_kernel_says
    ran = requires("--json", <<~'RUBY')
      require "socket"
      mappings = File.read("/proc/self/smaps").split(/^(?=\h+-\h+ )/).grep(%r{/socket\.so$})
      puts mappings.sum { |mapping| mapping[/^Rss: +(\d+) kB/, 1].to_i << 10 }
    RUBY
    socket = Memscope::Requires.from_json(ran.err.lines.last).nodes.find { |node| node.path.end_with?("/socket.so") }

    assert_exit 0, ran
    assert_operator Integer(ran.out), :positive?
    assert_in_delta Integer(ran.out), socket.mapped_bytes, 32 << 10 # what runs between the two readings
  end
end
