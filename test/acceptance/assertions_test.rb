# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/small_rails"

# Assertions in the tests of an application and of a gem, as people run them. Those with gems that the bundle lacks run
# in rake battery:assertions, which installs them into MEMSCOPE_ASSERTION_GEMS.
class AssertionsAcceptanceTest < MemscopeTest
  parallelize_me!

  GEMS = ENV.fetch("MEMSCOPE_ASSERTION_GEMS", nil)

  # Tests in parallel threads, of an application that Zeitwerk loads while they run, under Coverage.
  RAILS = <<~'RUBY'
    require "coverage"
    Coverage.start(lines: true)
    FILES = {
      "pages_controller.rb" => "class PagesController < ActionController::Base
        def show = render(plain: Page.new(params[:id]).text)
        def leak = render(plain: Page.keep(Page.new(params[:id])).text)
      end",
      "page.rb" => "class Page
        KEPT = []
        def self.keep(page) = KEPT.push(page).last
        def self.titles = @titles ||= Hash.new { |titles, id| titles[id] = \"title \#{id}\" }
        def initialize(id) = @id = id
        def text = \"page \#{@id}: \#{self.class.titles[@id]}\"
      end"
    }.each { |name, source| File.write(File.join(DIRECTORY, name), source) }
    App.config.autoload_paths << DIRECTORY
    App.routes.append { %w[show leak].each { |action| get "/#{action}/:id", to: "pages##{action}" } }
    App.initialize!
    require "minitest"
    require "memscope/assertions"
    require "action_dispatch/testing/integration"
    class PagesTest < Minitest::Test
      parallelize_me!
      include Memscope::Assertions

      2.times do |number|
        define_method("test_show_#{number}") { assert_no_growth(iterations: 20) { get("/show/#{number}") } }
      end
      def test_leak = assert_no_growth(iterations: 20) { get("/leak/1") }

      def get(path)
        status, = App.call(Rack::MockRequest.env_for("http://localhost#{path}"))
        raise "status #{status}" unless status == 200
      end
    end
    at_exit { puts "ended #{$$ == PARENT}" }
    PARENT = $$
    Minitest.run(%w[--seed 1])
    puts "kept #{Page::KEPT.size}"
  RUBY

  def test_in_a_rails_application
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      ran = ChildProcess.run("DIRECTORY = #{directory.inspect}\n#{SmallRails.source(eager_load: false)}\n#{RAILS}",
                             bundle: true, requires: %w[rack/mock], env: { "RAILS_ENV" => "test" })

      assert_includes ran.out, "3 runs, 3 assertions, 1 failures, 0 errors, 0 skips", ran
      assert_match(/\+1 Page per iteration \(20, 20, 20, 20, 20\)/, ran.out)
      assert_match(%r{allocated at #{directory}/pages_controller\.rb:3: 40 are left}, ran.out)
      assert_match(/held by Page::KEPT (?:→|->) Array (?:→|->) Page/, ran.out)
      assert_match(/kept 0\nended true\n\z/, ran.out)
    end
  end

  # Both sides of a matcher, in real examples.
  def test_in_rspec
    needs_gems
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "leak_spec.rb"), <<~RUBY)
        require "memscope/rspec"
        KEPT = []
        RSpec.describe "memory" do
          it("leaks") { expect { KEPT << Object.new }.to grow_memory }
          it("does not leak") { expect { Object.new }.not_to grow_memory }
          it("fails") { expect { KEPT << Object.new }.not_to grow_memory(warmup: 0) }
          it("allows") { expect { KEPT << Object.new }.not_to grow_memory(max: 1) }
          it("allocates") { expect { 3.times { Object.new } }.to allocate_at_most(3, Object => 3) }
          it("allocates more") { expect { 3.times { Object.new } }.to allocate_at_most(Object => 2) }
          it("takes no value") { expect(1).to grow_memory }
        end
      RUBY
      ran = with_gems("load Gem.bin_path('rspec-core', 'rspec')", "#{directory}/leak_spec.rb", "--no-color")

      assert_includes ran.out, "7 examples, 3 failures", ran
      assert_match(/expected the block not to grow memory:.*Leak: .*held by KEPT → Array → Object/m, ran.out)
      assert_match(/expected the block to allocate at most 2 Object, but it allocates\s+Object: 3 allocated/, ran.out)
    end
  end

  # A check inside a transaction sees the transaction's rows, which are still rolled back afterwards.
  def test_with_a_transaction_of_active_record
    needs_gems
    ran = with_gems(<<~RUBY)
      require "active_record"
      require "memscope/assertions"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ARGV.first)
      ActiveRecord::Schema.verbose = false
      ActiveRecord::Schema.define { create_table(:orders) { |table| table.string :title } }
      class Order < ActiveRecord::Base; end
      ran = []
      Order.transaction do
        Order.create!(title: "first")
        ran << Memscope::Check.run { Order.sum(:id); Order.find_by!(title: "first") }
        raise ActiveRecord::Rollback
      end
      ran << Memscope::Check.run { Order.count }
      puts ran.map { |check| [check.ran_in, check.grows?, check.reasons.keys].inspect }, Order.count
    RUBY

    assert_equal "[:process, false, [:ran_in]]\n[:child, false, []]\n0\n", ran.out, ran
  end

  # The process of the test run has a SimpleCov result, but the check's forked child leaves none.
  def test_with_simplecov
    needs_gems
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "covered.rb"), "def covered\n  Object.new\nend\n")
      ran = with_gems(<<~'RUBY', directory)
        Dir.chdir(ARGV.shift)
        require "simplecov"
        SimpleCov.enable_for_subprocesses true
        SimpleCov.start { root Dir.pwd }
        require "minitest"
        require "memscope/assertions"
        require "#{Dir.pwd}/covered"
        covered
        puts Memscope::Check.run { covered }.grows?
      RUBY

      assert_match(%r{\Afalse\n.*100\.0% \(2 / 2\)}m, ran.out, ran)
      assert_predicate ran, :success?, ran
      assert_equal 1, JSON.parse(File.read(File.join(directory, "coverage/.resultset.json"))).size
    end
  end

  private

  def needs_gems
    skip "needs the gems that rake battery:assertions installs" unless GEMS
  end

  def with_gems(script, *arguments)
    Dir.mktmpdir do |directory|
      arguments << File.join(directory, "test.sqlite3") if arguments.empty?
      command = [*ChildProcess.ruby(gems: true), "-rjson", "-e", script, "--", *arguments]
      ChildProcess.run_command(*command, env: { "GEM_HOME" => GEMS, "GEM_PATH" => GEMS, "LANG" => "C.UTF-8" })
    end
  end
end
